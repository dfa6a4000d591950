#include "graph/block_drafter.h"

#include <algorithm>

namespace tenon::graph {

TapOrder::TapOrder(std::vector<int> layers) : ascending_(layers) {
  std::sort(ascending_.begin(), ascending_.end());
  ascending_.erase(std::unique(ascending_.begin(), ascending_.end()), ascending_.end());
  for (int layer : layers)
    order_.push_back(static_cast<int>(
        std::lower_bound(ascending_.begin(), ascending_.end(), layer) - ascending_.begin()));
}

mx::array TapOrder::join(const std::vector<mx::array>& tapped, mx::Dtype dtype) const {
  if (tapped.size() != ascending_.size())
    throw std::logic_error(fmt::format("[taps] {} layers are tapped, {} were handed over",
                                       ascending_.size(), tapped.size()));
  std::vector<mx::array> parts;
  for (int i : order_) parts.push_back(mx::astype(tapped[i], dtype));
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, -1);
}

// The one way into a cache is to attend. A window of one token makes that next to nothing, and
// where arrays are grown lazily, nothing at all.
void append_context(cache::LayerCache& cache, const mx::array& keys, const mx::array& values,
                    ops::Rows rows) {
  ops::Attend itself{1.0f};
  itself.window = 1;
  static_cast<void>(cache.attend({keys, keys, values, {}}, rows, itself));
}

std::vector<ops::RowSlice> block_slices(std::span<const BlockRow> rows, int len,
                                        const cache::CacheSet& caches) {
  std::vector<ops::RowSlice> slices;
  for (size_t i = 0; i < rows.size(); ++i)
    slices.push_back({rows[i].slot, static_cast<int>(i) * len, len, caches.len(rows[i].slot)});
  return slices;
}

BlockPlaces::BlockPlaces(std::span<const BlockRow> rows, int len, int first) {
  const int num_steps = rows.empty() ? 0 : rows[0].num_drafts;
  for (int j = 0; j < num_steps; ++j) {
    starts.push_back(static_cast<int>(places.size()));
    for (size_t i = 0; i < rows.size() && rows[i].num_drafts > j; ++i)
      places.push_back(static_cast<int32_t>(i) * len + first + j);
    counts.push_back(static_cast<int>(places.size()) - starts.back());
  }
}

mx::array BlockPlaces::index() const {
  return mx::array(places.begin(), {static_cast<int>(places.size())}, mx::int32);
}

mx::array BlockPlaces::rows_of(const mx::array& picked, int j, int count) const {
  if (j >= static_cast<int>(starts.size()) || count < 1 || count > counts[j])
    throw std::logic_error(fmt::format("[block] draft {} of {} rows was not begun", j, count));
  return mx::slice(picked, {starts[j], 0}, {starts[j] + count, picked.shape(1)});
}

mx::array anchors_of(std::span<const BlockRow> rows) {
  std::vector<int32_t> ids;
  for (const BlockRow& row : rows) ids.push_back(row.anchor);
  return mx::array(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
}

const char* block_config_file(BlockLayout layout) {
  switch (layout) {
    case BlockLayout::dspark: return "dspark.json";
  }
  return "config.json";
}

Result<std::unique_ptr<BlockDrafter>> build_block_drafter(BlockLayout layout,
                                                          const profile::Manifest& manifest,
                                                          checkpoint::Weights& weights,
                                                          Model& target,
                                                          const BuildOptions& options) {
  switch (layout) {
    case BlockLayout::dspark: return build_dspark(manifest, weights, target, options);
  }
  return internal("no such layout of drafters");
}

}  // namespace tenon::graph

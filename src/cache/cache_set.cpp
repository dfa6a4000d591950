#include <algorithm>
#include <stdexcept>

#include "cache/cache.h"

namespace tenon::cache {

#define ENTRY(kind)                                                      \
  Result<std::unique_ptr<LayerCache>> make_##kind(const LayerPlan& plan, \
                                                  const ops::Kernels& kernels);
#include "cache/kinds.def"
#undef ENTRY

namespace {
struct Kind {
  const char* name;
  Result<std::unique_ptr<LayerCache>> (*make)(const LayerPlan&, const ops::Kernels&);
};
constexpr Kind kKinds[] = {
#define ENTRY(kind) {#kind, make_##kind},
#include "cache/kinds.def"
#undef ENTRY
};
}  // namespace

mx::array LayerCache::attend(const ops::Qkv&, ops::Rows, const ops::Attend&) {
  throw std::logic_error("[cache.attend] " + signature() + " is not an attention cache");
}

mx::array LayerCache::advance(const ops::DeltaInputs&, const ops::DeltaMixer&, ops::Rows) {
  throw std::logic_error("[cache.advance] " + signature() + " is not a recurrent cache");
}

std::vector<std::string> cache_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

Result<std::unique_ptr<LayerCache>> make_layer_cache(const LayerPlan& plan,
                                                     const ops::Kernels& kernels) {
  std::string name = plan.kind;
  if (name == "attention") {
    TENON_TRY(const auto pages, kernels.make_kv_pages(plan.kv));
    name = pages ? "paged" : plan.window > 0 ? "rotating" : plan.kv.bits > 0 ? "quantized" : "full";
  }
  for (const Kind& kind : kKinds)
    if (name == kind.name) return kind.make(plan, kernels);
  return unsupported("no cache kind '{}' in this build", plan.kind);
}

Result<CacheSet> CacheSet::make(const std::vector<LayerPlan>& plans, const ops::Kernels& kernels) {
  CacheSet set;
  for (const LayerPlan& plan : plans) {
    auto layer = make_layer_cache(plan, kernels);
    if (!layer.ok()) {
      Error error = std::move(layer).error();
      error.message = fmt::format("layer {}: {}", set.num_layers(), error.message);
      return error;
    }
    set.layers_.push_back(std::move(layer).value());
  }
  return set;
}

void CacheSet::open(int slot) {
  for (auto& layer : layers_) layer->open(slot);
}

void CacheSet::close(int slot) {
  for (auto& layer : layers_) layer->close(slot);
}

int CacheSet::len(int slot) const {
  const int len = layers_.empty() ? 0 : layers_.front()->len(slot);
  for (const auto& layer : layers_)
    if (layer->len(slot) != len)
      throw std::logic_error("[cache] layers of a row disagree on its length");
  return len;
}

void CacheSet::mark(int slot) {
  for (auto& layer : layers_) layer->mark(slot);
}

bool CacheSet::can_rollback(int slot, int len) const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const auto& layer) { return layer->can_rollback(slot, len); });
}

void CacheSet::rollback(int slot, int len) {
  // A layer that cannot throws; it is asked before the others have gone.
  const auto refuses = [&](const auto& layer) { return !layer->can_rollback(slot, len); };
  const auto first = std::find_if(layers_.begin(), layers_.end(), refuses);
  if (first != layers_.end()) return (*first)->rollback(slot, len);
  for (auto& layer : layers_) layer->rollback(slot, len);
}

std::vector<Snapshot> CacheSet::save(int slot) const {
  std::vector<Snapshot> snapshots;
  snapshots.reserve(layers_.size());
  for (const auto& layer : layers_) snapshots.push_back(layer->save(slot));
  return snapshots;
}

Status CacheSet::load(int slot, const std::vector<Snapshot>& snapshots) {
  if (snapshots.size() != layers_.size())
    return invalid("a snapshot of {} layers for a model of {}", snapshots.size(), layers_.size());
  for (const Snapshot& snapshot : snapshots)
    if (snapshot.len != snapshots.front().len)
      return corrupt("snapshot: layers of {} and {} tokens", snapshots.front().len, snapshot.len);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Status loaded = layers_[i]->load(slot, snapshots[i]);
    if (loaded.ok()) continue;
    rollback(slot, 0);
    return loaded;
  }
  return {};
}

std::vector<mx::array> CacheSet::state() const {
  std::vector<mx::array> arrays;
  for (const auto& layer : layers_) layer->collect(arrays);
  return arrays;
}

double CacheSet::bytes_per_token() const {
  double total = 0;
  for (const auto& layer : layers_) total += layer->bytes_per_token();
  return total;
}

uint64_t CacheSet::row_bytes() const {
  uint64_t total = 0;
  for (const auto& layer : layers_) total += layer->row_bytes();
  return total;
}

uint64_t CacheSet::bytes() const {
  uint64_t total = 0;
  for (const auto& layer : layers_) total += layer->bytes();
  return total;
}

uint64_t CacheSet::copies() const {
  uint64_t total = 0;
  for (const auto& layer : layers_) total += layer->copies();
  return total;
}

}  // namespace tenon::cache

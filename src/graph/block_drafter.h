// What drafters of blocks share: tapped states side by side, keys and values of a context, blocks
// behind contexts, and which of a block's states are wanted. Internal to graph.
// Thread: the engine's. Shapes: G tokens of a block; E the target's width.
#pragma once
#include <filesystem>

#include "graph/loader.h"

namespace tenon::graph {

// States of tapped layers in the order that a drafter was trained with.
class TapOrder {
 public:
  TapOrder() = default;
  explicit TapOrder(std::vector<int> layers);
  const std::vector<int>& layers() const { return ascending_; }  // each once
  int num() const { return static_cast<int>(order_.size()); }
  // [N, E] of each of layers() -> [N, num() * E]
  mx::array join(const std::vector<mx::array>& tapped, mx::Dtype dtype) const;

 private:
  std::vector<int> ascending_;
  std::vector<int> order_;  // index into ascending_, by place
};

// Keys and values [N, K, D] into a cache that nobody asks yet.
void append_context(cache::LayerCache& cache, const mx::array& keys, const mx::array& values,
                    ops::Rows rows);

// One slice for each row, of `len` tokens behind its context.
std::vector<ops::RowSlice> block_slices(std::span<const BlockRow> rows, int len,
                                        const cache::CacheSet& caches);

// Draft j of the rows that want one: which states of [R * G, d] say it, draft after draft.
struct BlockPlaces {
  BlockPlaces(std::span<const BlockRow> rows, int len, int first);  // first: state of draft 0
  mx::array index() const;  // int32 [M]
  // Of draft j: rows [start, start + count) of what index() takes.
  std::vector<int> starts, counts;
  std::vector<int32_t> places;
  mx::array rows_of(const mx::array& picked, int j, int count) const;  // its first `count`
};

mx::array anchors_of(std::span<const BlockRow> rows);  // int32 [R]

inline std::string file_in(const profile::Manifest& manifest, const char* name) {
  return (std::filesystem::path(manifest.path) / name).string();
}

// dspark.cpp
Result<std::unique_ptr<BlockDrafter>> build_dspark(const profile::Manifest& manifest,
                                                   checkpoint::Weights& weights, Model& target,
                                                   const BuildOptions& options);

}  // namespace tenon::graph

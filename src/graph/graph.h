// The door of graph: a loaded model as a function from ids to hidden states to logits.
// Families live in families/<family>.cpp, one file each, read top to bottom like a paper.
// Thread: the engine's. Shapes: ids int32 [N]; hidden [N, E] after the final norm; logits [M, V].
// Errors while building: Result, naming file, tensor or config field; while running: exceptions
// whose text begins "[op_name]".
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "checkpoint/checkpoint.h"
#include "ops/ops.h"
#include "profile/profile.h"

namespace tenon::graph {

namespace mx = mlx::core;

struct ModelShape {
  int num_layers = 0;
  int hidden_size = 0;
  int vocab_size = 0;     // width of the logits
  int context_len = 0;    // max_position_embeddings; 0: not stated
  uint64_t weight_bytes = 0;
};

// Hidden states to look at on their way, for draft sources that read them. Index i in [0, L): the
// residual stream after layer i; L: after the final norm.
struct Taps {
  std::vector<int> layers;       // ascending
  std::vector<mx::array> found;  // [N, E] of each, once hidden() has run
  void see(int index, const mx::array& h) {
    for (int layer : layers)
      if (layer == index) found.push_back(h);
  }
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelShape& shape() const = 0;
  virtual cache::CacheSet& caches() = 0;
  virtual mx::array embed(const mx::array& ids) = 0;  // the table's rows, unscaled [N, E]
  // Appends each row's tokens to its caches. Rows are disjoint, in flat order, and cover ids.
  // `taps` may be null.
  virtual mx::array hidden(const mx::array& ids, ops::Rows rows, Taps* taps) = 0;
  virtual mx::array logits(const mx::array& hidden) = 0;
};

// How keys and values are stored: floats, or quantized along each head's width (bits > 0).
struct KvScheme {
  struct Quantized {
    int bits = 0;
    int group_size = 0;  // 0: 64, or 32 where heads are not whole groups of 64
  };
  mx::Dtype dtype = mx::float32;
  Quantized all;  // every layer that `layers` does not name
  std::map<int, Quantized> layers;
  ops::KvShape shape(int layer, int num_kv_heads, int k_head_dim, int v_head_dim) const;
  std::string text() const;  // "float16", "8 bits", "by layer"
};

struct BuildOptions {
  std::shared_ptr<const ops::Kernels> kernels;
  mx::Dtype dtype = mx::float32;  // of activations; floating weights are cast to it
  KvScheme kv;
};

// Takes every tensor it needs from `weights`; what is left over is the caller's to report
// (finish()).
Result<std::unique_ptr<Model>> build(const profile::Resolved& resolved,
                                     const profile::Manifest& manifest,
                                     checkpoint::Weights& weights, const BuildOptions& options);

// A model that reads whole texts: every token sees all of its row.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual const ModelShape& shape() const = 0;
  // ids int32 [N] -> [N, E], evaluated. Rows are whole texts from position 0, in flat order, each
  // of at most shape().context_len tokens; their slots are numbered from 0.
  virtual mx::array encode(const mx::array& ids, ops::Rows rows) = 0;
};
Result<std::unique_ptr<Encoder>> build_encoder(const profile::Resolved& resolved,
                                               const profile::Manifest& manifest,
                                               checkpoint::Weights& weights,
                                               const BuildOptions& options);

// A head for multi-token prediction: reads a target's hidden state at a position and the embedding
// of the token behind it; its output is a hidden state for the target's logits() and for itself.
class DraftHead {
 public:
  virtual ~DraftHead() = default;
  virtual int hidden_size() const = 0;
  virtual int block_size() const = 0;  // the pending token and the drafts it was made for
  virtual uint64_t weight_bytes() const = 0;
  virtual cache::CacheSet& caches() = 0;
  // embedded, hidden [N, E] -> [N, E], after its own norm.
  virtual mx::array forward(const mx::array& embedded, const mx::array& hidden, ops::Rows rows) = 0;
};
// From a target's own weights (tensors mtp.*), after the target took its own, or from a drafter's
// folder. Errors: unsupported (no such head, or one this graph lacks), those of loading.
Result<std::unique_ptr<DraftHead>> build_draft_head(const profile::Manifest& manifest,
                                                    checkpoint::Weights& weights,
                                                    const BuildOptions& options);
// The checkpoint brings a head of its own.
bool has_draft_head(const checkpoint::Weights& weights);

// A row whose next tokens a block proposes. Its context is as long as the target's caches.
struct BlockRow {
  int slot = 0;
  int32_t anchor = 0;  // the token behind the context
  int num_drafts = 0;  // 1 to max_drafts()
};

struct DraftStep {
  mx::array logits;  // [R, V] over the target's words
  std::optional<mx::array>
      confidence;  // float32 [R], in [0, 1]; none: the drafter has no such head
};

// The blocks of some rows, from begin() until their contexts are rolled back.
class DraftBlock {
 public:
  virtual ~DraftBlock() = default;
  // Of the next draft of every row that wants one more. previous int32 [R]: their last drafts, at
  // first their anchors.
  virtual DraftStep next(const mx::array& previous) = 0;
};

// A drafter of whole blocks. It reads what tapped layers of the target say of every token in the
// target's caches (its context) and computes all drafts of a block at once; what one draft means
// for the next is a small head's business. Refers to its target.
class BlockDrafter {
 public:
  virtual ~BlockDrafter() = default;
  virtual const std::vector<int>& taps() const = 0;  // of the target, ascending; see Taps
  virtual int max_drafts() const = 0;  // of one block
  // Draft j goes out only with this much confidence; `wanted`: what the user asks for, if anything.
  virtual float min_confidence(int j, std::optional<float> wanted) const = 0;
  virtual uint64_t weight_bytes() const = 0;
  virtual cache::CacheSet& caches() = 0;  // of the contexts
  // tapped: [N, E] of each of taps(), appended to the rows' contexts.
  virtual void append(const std::vector<mx::array>& tapped, ops::Rows rows) = 0;
  // Rows by falling num_drafts. Their blocks lie behind their contexts until these are rolled back.
  virtual std::unique_ptr<DraftBlock> begin(std::span<const BlockRow> rows) = 0;
};

// dspark: dspark.json and model.safetensors.
enum class BlockLayout { dspark };
const char* block_config_file(BlockLayout layout);  // that the manifest's config is read from
// From a drafter's folder. Errors: unsupported (another kind, version or target), invalid, those of
// loading; they name file and field or tensor.
Result<std::unique_ptr<BlockDrafter>> build_block_drafter(BlockLayout layout,
                                                          const profile::Manifest& manifest,
                                                          checkpoint::Weights& weights,
                                                          Model& target,
                                                          const BuildOptions& options);

// The dtype the checkpoint's floating weights are stored in.
Result<mx::Dtype> stored_dtype(const checkpoint::Weights& weights);

}  // namespace tenon::graph

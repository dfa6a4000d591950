// The door of cache: what a layer remembers of every row in the batch.
// One LayerCache per layer that owns state; a row is a slot number, opened when a sequence gets a
// place in the batch and closed when it leaves. attend() appends and attends in one call, with
// per-row lengths, so how state is stored (grown arrays, pages, rings, packed bits) is nobody
// else's business.
//
// Rollback: rollback(slot, len) forgets all but the first len tokens. State that grows can always
// do that; state that does not (recurrent, or a window's ring) keeps what it needs for it from
// mark(slot) on: until the next rollback or mark it can go back to the mark, and into the step
// behind the mark while there was no other. A rollback to the present length lets go of the mark.
// Going back to nothing is always possible.
//
// Snapshots: save, close, open, load and go on equals never having stopped, bit for bit.
// Thread: the engine's; a Snapshot is plain bytes, anybody's. Units: tokens, bytes. Shapes: q [N,
// H, D], k and v [N, K, D], out [N, H, D]. Adding a kind: kinds/<kind>.cpp and one ENTRY line in
// kinds.def.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tenon::cache {

namespace mx = mlx::core;

// What a layer needs of its cache; families state it, kinds build from it.
struct LayerPlan {
  // ENTRY name, or "attention": paged where the kernel family attends over pages; else rotating,
  // quantized or full, as window and kv say.
  std::string kind = "attention";
  ops::KvShape kv;
  int window = 0;  // tokens that a token sees, itself included; 0: all
  ops::DeltaShape delta;  // recurrent; kv.dtype is then that of its activations
};

// One row of one layer. What the parts hold is its kind's business.
struct Snapshot {
  struct Part {
    mx::Shape shape;
    mx::Dtype dtype;
    std::vector<std::byte> bytes;
  };
  std::string signature;
  int len = 0;  // tokens
  int at = 0;  // a ring's next place; the first of the pages that are there
  std::vector<Part> parts;
};

class LayerCache {
 public:
  virtual ~LayerCache() = default;
  // Key of the storage layout: "kv:plain". Snapshots and batches may only mix equal ones.
  virtual std::string signature() const = 0;
  virtual double bytes_per_token() const = 0;  // of one row, for admission
  virtual uint64_t row_bytes() const { return 0; }  // of one row, however long
  virtual uint64_t bytes() const = 0;  // held now, all rows

  virtual void open(int slot) = 0;  // an empty row; throws when the slot is open
  virtual void close(int slot) = 0;  // frees it; closing a closed slot is nothing
  virtual int len(int slot) const = 0;

  // Appends k and v of each row at its offset (which must be len(slot)) and attends causally.
  // Without k and v: attends to what an earlier layer of this step appended here.
  virtual mx::array attend(const ops::Qkv& qkv, ops::Rows rows, const ops::Attend& how);
  // The recurrent counterpart: each row's tokens through its state, which they replace.
  virtual mx::array advance(const ops::DeltaInputs& inputs, const ops::DeltaMixer& mixer,
                            ops::Rows rows);
  virtual void mark(int slot) { static_cast<void>(len(slot)); }
  virtual bool can_rollback(int slot, int len) const = 0;
  virtual void rollback(int slot, int len) = 0;  // throws where it cannot, and nothing happened

  virtual Snapshot save(int slot) const = 0;  // evaluates
  // Into an empty row. Errors: invalid (another signature), corrupt (parts that do not fit): the
  // row stays empty, and its owner computes it anew.
  virtual Status load(int slot, const Snapshot& snapshot) = 0;

  // Appends the arrays that must be evaluated with a step, or the lazy graph grows.
  virtual void collect(std::vector<mx::array>& out) const = 0;
  virtual uint64_t copies() const { return 0; }  // whole-buffer copies seen so far
};

// Errors: unsupported (no such kind, or a shape or dtype that the kernels lack).
Result<std::unique_ptr<LayerCache>> make_layer_cache(const LayerPlan& plan,
                                                     const ops::Kernels& kernels);
std::vector<std::string> cache_kinds();  // registry order

// All layers of one model; a row opens, rolls back and closes in all of them or in none.
class CacheSet {
 public:
  static Result<CacheSet> make(const std::vector<LayerPlan>& plans, const ops::Kernels& kernels);
  LayerCache& layer(int i) { return *layers_[i]; }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  void open(int slot);
  void close(int slot);
  int len(int slot) const;  // throws when layers disagree: a failed forward must close the row
  void mark(int slot);
  bool can_rollback(int slot, int len) const;
  void rollback(int slot, int len);
  std::vector<Snapshot> save(int slot) const;  // layer by layer
  Status load(int slot, const std::vector<Snapshot>& snapshots);
  std::vector<mx::array> state() const;
  double bytes_per_token() const;
  uint64_t row_bytes() const;
  uint64_t bytes() const;
  uint64_t copies() const;

 private:
  std::vector<std::unique_ptr<LayerCache>> layers_;
};

}  // namespace tenon::cache

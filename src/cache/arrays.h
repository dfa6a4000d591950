// Arrays as caches keep them: copies that pin nothing, buffers that grow, parts of snapshots.
// Thread: the engine's. A row's keys or values are [1, K, tokens, width].
#pragma once
#include "cache/cache.h"

namespace tenon::cache {

// Rows [from, to) of axis 0 in a buffer of their own, bit for bit. Slices and mx::contiguous may
// keep the whole source alive; this never does.
mx::array true_copy(const mx::array& x, int from, int to);
inline mx::array true_copy(const mx::array& x) { return true_copy(x, 0, x.shape(0)); }

// Tokens of one row: [N, heads, D] -> [1, heads, len, D], and back.
mx::array heads_first(const mx::array& x, const ops::RowSlice& row);
mx::array tokens_first(const mx::array& x);

// Tokens [from, to) of [1, K, tokens, width]; a view.
mx::array cut(const mx::array& x, int from, int to);

// Whether writing into the buffer would copy it: somebody else holds it.
bool is_shared(const mx::array& buffer);

// Writes x into the buffer from token `at`. The buffer's handle is given up first, so that it has
// one owner and is updated in place once evaluated.
void write(std::optional<mx::array>& buffer, const mx::array& x, int at);

// Keys or values that grow by slabs of 256 tokens, as mlx-lm's KVCache does. Beyond the row's
// length: garbage, never read.
class GrownArray {
 public:
  GrownArray(int num_heads, int width, mx::Dtype dtype)
      : num_heads_(num_heads), width_(width), dtype_(dtype) {}
  // x [1, K, L, width] behind the first `len` tokens. True: that copies the whole buffer.
  bool append(const mx::array& x, int len);
  mx::array filled(int len) const;  // the first `len` tokens; a view
  uint64_t bytes() const { return buffer_ ? buffer_->nbytes() : 0; }
  void collect(std::vector<mx::array>& out) const {
    if (buffer_) out.push_back(*buffer_);
  }
  Snapshot::Part save(int len) const;
  Status load(const Snapshot::Part& part, int len);

 private:
  void grow(int len, int num_new);
  int num_heads_, width_;
  mx::Dtype dtype_;
  std::optional<mx::array> buffer_;
};

// Evaluates.
Snapshot::Part to_part(const mx::array& x);
// Errors: corrupt (another shape, dtype or number of bytes).
Result<mx::array> from_part(const Snapshot::Part& part, const mx::Shape& shape, mx::Dtype dtype);
// Before loading into a row of `row_len` tokens, which must be 0 (throws). Errors: invalid (another
// signature), corrupt (number of parts; an empty row has none).
Status check_snapshot(const Snapshot& snapshot, const std::string& signature, size_t num_parts,
                      int row_len);

}  // namespace tenon::cache

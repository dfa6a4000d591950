#include "cache/arrays.h"

#include <cstring>
#include <stdexcept>

#include "base/handover.h"

namespace tenon::cache {

namespace {
constexpr int kSlabTokens = 256;
}  // namespace

// Gathering writes every element into a fresh buffer, at any size.
mx::array true_copy(const mx::array& x, int from, int to) {
  return mx::take(x, mx::arange(from, to), 0);
}

mx::array heads_first(const mx::array& x, const ops::RowSlice& row) {
  const mx::array part =
      mx::slice(x, {row.start, 0, 0}, {row.start + row.len, x.shape(1), x.shape(2)});
  return mx::expand_dims(mx::transpose(part, {1, 0, 2}), 0);
}

mx::array tokens_first(const mx::array& x) {
  return mx::squeeze(mx::transpose(x, {0, 2, 1, 3}), 0);
}

mx::array cut(const mx::array& x, int from, int to) {
  return mx::slice(x, {0, 0, from, 0}, {1, x.shape(1), to, x.shape(3)});
}

bool is_shared(const mx::array& buffer) { return buffer.is_available() && !buffer.is_donatable(); }

void write(std::optional<mx::array>& buffer, const mx::array& x, int at) {
  mx::array old = std::move(*buffer);
  buffer = mx::slice_update(old, x, mx::Shape{0, 0, at, 0},
                            mx::Shape{1, x.shape(1), at + x.shape(2), x.shape(3)});
}

bool GrownArray::append(const mx::array& x, int len) {
  const int num_new = x.shape(2);
  const bool fits = buffer_ && len + num_new <= buffer_->shape(2);
  if (!fits) grow(len, num_new);
  const bool copies = fits && is_shared(*buffer_);
  write(buffer_, x, len);
  return copies;
}

void GrownArray::grow(int len, int num_new) {
  const int slabs = (kSlabTokens + num_new - 1) / kSlabTokens;
  const mx::array fresh = mx::zeros({1, num_heads_, slabs * kSlabTokens, width_}, dtype_);
  if (!buffer_) {
    buffer_ = fresh;
    return;
  }
  buffer_ = mx::concatenate({len % kSlabTokens == 0 ? *buffer_ : filled(len), fresh}, 2);
}

mx::array GrownArray::filled(int len) const {
  return len == buffer_->shape(2) ? *buffer_ : cut(*buffer_, 0, len);
}

Snapshot::Part GrownArray::save(int len) const { return to_part(filled(len)); }

Status GrownArray::load(const Snapshot::Part& part, int len) {
  TENON_TRY(buffer_, from_part(part, {1, num_heads_, len, width_}, dtype_));
  return {};
}

Snapshot::Part to_part(const mx::array& x) {
  const mx::array packed = mx::contiguous(x);
  mx::eval(packed);
  Handover::returned();
  Snapshot::Part part{packed.shape(), packed.dtype(), {}};
  const auto* bytes = packed.data<std::byte>();
  part.bytes.assign(bytes, bytes + packed.nbytes());
  return part;
}

Result<mx::array> from_part(const Snapshot::Part& part, const mx::Shape& shape, mx::Dtype dtype) {
  size_t size = mx::size_of(dtype);
  for (const int dim : shape) size *= dim;
  if (part.shape != shape || part.dtype != dtype || part.bytes.size() != size)
    return corrupt("snapshot: a part of {} bytes does not fit this cache, which expects {}",
                   part.bytes.size(), size);
  mx::allocator::Data data = mx::allocator::malloc(size);
  std::memcpy(data.buffer().raw_ptr(), part.bytes.data(), size);
  return mx::array(std::move(data), shape, dtype);
}

Status check_snapshot(const Snapshot& snapshot, const std::string& signature, size_t num_parts,
                      int row_len) {
  if (row_len > 0) throw std::logic_error("[cache.load] the row is not empty");
  if (snapshot.signature != signature)
    return invalid("a snapshot of '{}' does not fit a cache of '{}'", snapshot.signature,
                   signature);
  const size_t expected = snapshot.len > 0 ? num_parts : 0;
  if (snapshot.len < 0 || snapshot.parts.size() != expected)
    return corrupt("snapshot of {} tokens with {} parts, which need {}", snapshot.len,
                   snapshot.parts.size(), expected);
  return {};
}

}  // namespace tenon::cache

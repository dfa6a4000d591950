// Cache kind `quantized`: keys and values as affine codes, for the `mlx` kernel family. They are
// quantized as they are appended, from token 0, in groups along the head width, so appending and
// rolling back are exact. Source: mlx-lm models/cache.py (QuantizedKVCache), base.py
// (quantized_scaled_dot_product_attention).
#include <algorithm>

#include "cache/row_map.h"
#include "cache/stock_attention.h"

namespace tenon::cache {

namespace {

// Codes uint32 [1, K, S, width * bits / 32], scales and biases [1, K, S, width / group].
struct Packed {
  mx::array codes, scales, biases;
  Packed with_repeats() const {
    return {mx::expand_dims(codes, -3), mx::expand_dims(scales, -3), mx::expand_dims(biases, -3)};
  }
};

// Keys, or values, of a row.
class PackedRows {
 public:
  PackedRows(const ops::KvShape& kv, int width)
      : bits_(kv.bits),
        group_(kv.group_size),
        parts_{GrownArray(kv.num_kv_heads, width * kv.bits / 32, mx::uint32),
               GrownArray(kv.num_kv_heads, width / kv.group_size, kv.dtype),
               GrownArray(kv.num_kv_heads, width / kv.group_size, kv.dtype)} {}

  int append(const mx::array& x, int len) {
    const std::vector<mx::array> packed = mx::quantize(x, group_, bits_);
    int copies = 0;
    for (size_t i = 0; i < parts_.size(); ++i) copies += parts_[i].append(packed[i], len);
    return copies;
  }
  Packed filled(int len) const {
    return {parts_[0].filled(len), parts_[1].filled(len), parts_[2].filled(len)};
  }
  uint64_t bytes() const { return parts_[0].bytes() + parts_[1].bytes() + parts_[2].bytes(); }
  void collect(std::vector<mx::array>& out) const {
    for (const GrownArray& part : parts_) part.collect(out);
  }
  void save(int len, std::vector<Snapshot::Part>& out) const {
    for (const GrownArray& part : parts_) out.push_back(part.save(len));
  }
  Status load(const Snapshot::Part* from, int len) {
    for (GrownArray& part : parts_) TENON_OK(part.load(*from++, len));
    return {};
  }

 private:
  int bits_, group_;
  std::vector<GrownArray> parts_;
};

// q [1, H, L, D] -> [1, H, L, D]
mx::array attend_packed(const mx::array& q, const Packed& k, const Packed& v,
                        const ops::KvShape& kv, const ops::Attend& how, const Mask& mask) {
  const int repeats = q.shape(1) / kv.num_kv_heads;
  mx::array queries = q * ops::scalar_like(how.scale, q);
  if (repeats > 1)
    queries = mx::reshape(queries, {1, kv.num_kv_heads, repeats, q.shape(2), q.shape(3)});
  const Packed keys = repeats > 1 ? k.with_repeats() : k;
  const Packed values = repeats > 1 ? v.with_repeats() : v;
  mx::array scores = mx::quantized_matmul(queries, keys.codes, keys.scales, keys.biases, true,
                                          kv.group_size, kv.bits);
  if (how.softcap > 0) scores = soft_capped(scores, how.softcap);
  if (mask.seen) scores = masked(scores, *mask.seen);
  const mx::array out =
      mx::quantized_matmul(mx::softmax(scores, -1, true), values.codes, values.scales,
                           values.biases, false, kv.group_size, kv.bits);
  return repeats > 1 ? mx::reshape(out, {1, q.shape(1), q.shape(2), kv.v_head_dim}) : out;
}

class QuantizedCache final : public LayerCache {
 public:
  explicit QuantizedCache(const LayerPlan& plan) : kv_(plan.kv) {}

  std::string signature() const override {
    return fmt::format("kv:quant:{}:{}", kv_.bits, kv_.group_size);
  }
  double bytes_per_token() const override {
    const double per_value = kv_.bits / 8.0 + 2.0 * mx::size_of(kv_.dtype) / kv_.group_size;
    return per_value * kv_.num_kv_heads * (kv_.k_head_dim + kv_.v_head_dim);
  }
  uint64_t bytes() const override {
    uint64_t total = 0;
    for (const auto& [slot, row] : rows_) total += row.k.bytes() + row.v.bytes();
    return total;
  }
  uint64_t copies() const override { return copies_; }

  void open(int slot) override { rows_.open(slot, empty_row()); }
  void close(int slot) override { rows_.close(slot); }
  int len(int slot) const override { return rows_.at(slot).len; }

  mx::array attend(const ops::Qkv& qkv, ops::Rows rows, const ops::Attend& how) override {
    return attend_rows(qkv.q, rows, [&](const ops::RowSlice& slice, const mx::array& q) {
      Row& row = rows_.at(slice.slot);
      check_offset(slice, row.len, qkv.k.has_value());
      if (qkv.k) {
        copies_ += row.k.append(mx::astype(heads_first(*qkv.k, slice), kv_.dtype), row.len);
        copies_ += row.v.append(mx::astype(heads_first(*qkv.v, slice), kv_.dtype), row.len);
        row.len += slice.len;
      }
      Mask mask = full_mask(slice.len, slice.offset, how);
      if (mask.mode == "causal") mask = Mask::of(causal_mask(slice.len, slice.offset, 0));
      return attend_packed(q, row.k.filled(row.len), row.v.filled(row.len), kv_, how, mask);
    });
  }

  bool can_rollback(int slot, int len) const override {
    return len >= 0 && len <= rows_.at(slot).len;
  }
  void rollback(int slot, int len) override {
    Row& row = rows_.at(slot);
    if (!can_rollback(slot, len)) refuse_rollback(len, row.len, "any length up to it");
    row.len = len;
  }

  Snapshot save(int slot) const override {
    const Row& row = rows_.at(slot);
    Snapshot s{signature(), row.len, 0, {}};
    if (row.len == 0) return s;
    row.k.save(row.len, s.parts);
    row.v.save(row.len, s.parts);
    return s;
  }
  Status load(int slot, const Snapshot& s) override {
    TENON_OK(check_snapshot(s, signature(), 6, len(slot)));
    Row loaded = empty_row();
    loaded.len = s.len;
    if (s.len > 0) {
      TENON_OK(loaded.k.load(&s.parts[0], s.len));
      TENON_OK(loaded.v.load(&s.parts[3], s.len));
    }
    rows_.at(slot) = std::move(loaded);
    return {};
  }

  void collect(std::vector<mx::array>& out) const override {
    for (const auto& [slot, row] : rows_) {
      row.k.collect(out);
      row.v.collect(out);
    }
  }

 private:
  struct Row {
    PackedRows k, v;
    int len = 0;
  };
  Row empty_row() const { return {{kv_, kv_.k_head_dim}, {kv_, kv_.v_head_dim}}; }

  ops::KvShape kv_;
  RowMap<Row> rows_;
  uint64_t copies_ = 0;
};

}  // namespace

Result<std::unique_ptr<LayerCache>> make_quantized(const LayerPlan& plan, const ops::Kernels&) {
  const ops::KvShape& kv = plan.kv;
  const auto one_of = [](int x, std::initializer_list<int> list) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  if (!one_of(kv.bits, {2, 3, 4, 5, 6, 8}) || !one_of(kv.group_size, {32, 64, 128}))
    return unsupported(
        "keys and values of {} bits in groups of {}: there are 2, 3, 4, 5, 6 or 8 bits in groups "
        "of 32, 64 or 128",
        kv.bits, kv.group_size);
  for (const int width : {kv.k_head_dim, kv.v_head_dim})
    if (width % kv.group_size != 0)
      return unsupported(
          "heads of width {} are not whole groups of {} (keys and values of {} bits)", width,
          kv.group_size, kv.bits);
  return std::unique_ptr<LayerCache>(new QuantizedCache(plan));
}

}  // namespace tenon::cache

// Cache kind `full`: every key and value of a row, for the `mlx` kernel family.
// Stored per row as grown arrays [1, K, capacity, D], in slabs of 256 tokens, in mlx-lm's KVCache
// way, so that the bits attention reads and the shapes it sees are mlx-lm's. Each row attends on
// its own: stock attention of a padded batch would not be bit-equal to the row alone. Source:
// mlx-lm models/cache.py (KVCache), base.py (masks).
#include <map>
#include <stdexcept>

#include "cache/cache.h"

namespace tenon::cache {

namespace {

constexpr int kSlabTokens = 256;

class FullCache final : public LayerCache {
 public:
  explicit FullCache(const LayerPlan& plan) : plan_(plan) {}

  std::string signature() const override { return "kv:plain"; }
  double bytes_per_token() const override {
    return static_cast<double>(plan_.kv.num_kv_heads) *
           (plan_.kv.k_head_dim + plan_.kv.v_head_dim) * mx::size_of(plan_.kv.dtype);
  }
  uint64_t bytes() const override {
    uint64_t total = 0;
    for (const auto& [slot, row] : rows_)
      if (row.k) total += row.k->nbytes() + row.v->nbytes();
    return total;
  }

  void open(int slot) override {
    if (!rows_.try_emplace(slot).second) throw std::logic_error("[cache.open] the slot is open");
  }
  void close(int slot) override { rows_.erase(slot); }
  int len(int slot) const override { return rows_.at(slot).len; }

  mx::array attend(const mx::array& q, const mx::array& k, const mx::array& v, ops::Rows rows,
                   const ops::Attend& how) override {
    std::vector<mx::array> outs;
    for (const ops::RowSlice& slice : rows) {
      Row& row = rows_.at(slice.slot);
      if (slice.offset != row.len)
        throw std::logic_error("[cache.attend] the row is not at its offset");
      auto [keys, values] = append(row, heads_first(k, slice), heads_first(v, slice));
      const mx::array out = mx::fast::scaled_dot_product_attention(
          heads_first(q, slice), keys, values, how.scale, slice.len > 1 ? "causal" : "");
      outs.push_back(mx::squeeze(mx::transpose(out, {0, 2, 1, 3}), 0));
    }
    return outs.size() == 1 ? outs[0] : mx::concatenate(outs, 0);
  }

  void rollback(int slot, int len) override {
    Row& row = rows_.at(slot);
    if (len < 0 || len > row.len) throw std::logic_error("[cache.rollback] length outside the row");
    row.len = len;
  }

  void collect(std::vector<mx::array>& out) const override {
    for (const auto& [slot, row] : rows_)
      if (row.k) {
        out.push_back(*row.k);
        out.push_back(*row.v);
      }
  }

 private:
  struct Row {
    std::optional<mx::array> k, v;  // [1, K, capacity, D]; beyond len: garbage, never read
    int len = 0;
  };

  // Tokens of one row, [1, heads, len, D].
  static mx::array heads_first(const mx::array& x, const ops::RowSlice& row) {
    const mx::array part =
        mx::slice(x, {row.start, 0, 0}, {row.start + row.len, x.shape(1), x.shape(2)});
    return mx::expand_dims(mx::transpose(part, {1, 0, 2}), 0);
  }

  std::pair<mx::array, mx::array> append(Row& row, const mx::array& k, const mx::array& v) {
    const int num_new = k.shape(2);
    grow(row.k, row.len, num_new, k.shape(3));
    grow(row.v, row.len, num_new, v.shape(3));
    const int end = row.len + num_new;
    const auto write = [&](std::optional<mx::array>& buffer, const mx::array& x) {
      const mx::array fresh = mx::astype(x, plan_.kv.dtype);
      // Moved out first, so that the buffer has one owner and is updated in place once evaluated.
      mx::array old = std::move(*buffer);
      buffer = mx::slice_update(old, fresh, mx::Shape{0, 0, row.len, 0},
                                mx::Shape{1, plan_.kv.num_kv_heads, end, x.shape(3)});
    };
    write(row.k, k);
    write(row.v, v);
    row.len = end;
    return {filled(*row.k, end), filled(*row.v, end)};
  }

  void grow(std::optional<mx::array>& buffer, int len, int num_new, int head_dim) const {
    if (buffer && len + num_new <= buffer->shape(2)) return;
    const int slabs = (kSlabTokens + num_new - 1) / kSlabTokens;
    const mx::array fresh =
        mx::zeros({1, plan_.kv.num_kv_heads, slabs * kSlabTokens, head_dim}, plan_.kv.dtype);
    if (!buffer) {
      buffer = fresh;
      return;
    }
    const mx::array kept =
        len % kSlabTokens == 0 && len == buffer->shape(2) ? *buffer : filled(*buffer, len);
    buffer = mx::concatenate({kept, fresh}, 2);
  }

  static mx::array filled(const mx::array& buffer, int len) {
    if (len == buffer.shape(2)) return buffer;
    return mx::slice(buffer, {0, 0, 0, 0}, {1, buffer.shape(1), len, buffer.shape(3)});
  }

  LayerPlan plan_;
  std::map<int, Row> rows_;
};

}  // namespace

Result<std::unique_ptr<LayerCache>> make_full(const LayerPlan& plan, const ops::Kernels&) {
  return std::unique_ptr<LayerCache>(new FullCache(plan));
}

}  // namespace tenon::cache

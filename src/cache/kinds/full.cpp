// Cache kind `full`: every key and value of a row, for the `mlx` kernel family.
// Stored per row as grown arrays in mlx-lm's KVCache way, so that the bits attention reads and the
// shapes it sees are mlx-lm's. A window is a mask here: nothing is forgotten. Source: mlx-lm
// models/cache.py (KVCache).
#include "cache/row_map.h"
#include "cache/stock_attention.h"

namespace tenon::cache {

namespace {

class FullCache final : public LayerCache {
 public:
  explicit FullCache(const LayerPlan& plan) : kv_(plan.kv) {}

  std::string signature() const override { return "kv:plain"; }
  double bytes_per_token() const override {
    return static_cast<double>(kv_.num_kv_heads) * (kv_.k_head_dim + kv_.v_head_dim) *
           mx::size_of(kv_.dtype);
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
      if (qkv.k) append(row, heads_first(*qkv.k, slice), heads_first(*qkv.v, slice));
      return attend_heads(q, row.k.filled(row.len), row.v.filled(row.len), how,
                          full_mask(slice.len, slice.offset, how));
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
    if (row.len > 0) s.parts = {row.k.save(row.len), row.v.save(row.len)};
    return s;
  }
  Status load(int slot, const Snapshot& s) override {
    TENON_OK(check_snapshot(s, signature(), 2, len(slot)));
    Row loaded = empty_row();
    loaded.len = s.len;
    if (s.len > 0) {
      TENON_OK(loaded.k.load(s.parts[0], s.len));
      TENON_OK(loaded.v.load(s.parts[1], s.len));
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
    GrownArray k, v;
    int len = 0;
  };

  Row empty_row() const {
    return {{kv_.num_kv_heads, kv_.k_head_dim, kv_.dtype},
            {kv_.num_kv_heads, kv_.v_head_dim, kv_.dtype}};
  }

  void append(Row& row, const mx::array& k, const mx::array& v) {
    const bool k_copied = row.k.append(mx::astype(k, kv_.dtype), row.len);
    const bool v_copied = row.v.append(mx::astype(v, kv_.dtype), row.len);
    copies_ += k_copied + v_copied;
    row.len += k.shape(2);
  }

  ops::KvShape kv_;
  RowMap<Row> rows_;
  uint64_t copies_ = 0;
};

}  // namespace

Result<std::unique_ptr<LayerCache>> make_full(const LayerPlan& plan, const ops::Kernels&) {
  if (plan.kv.bits > 0)
    return unsupported("cache kind full keeps plain keys and values, not {} bits", plan.kv.bits);
  return std::unique_ptr<LayerCache>(new FullCache(plan));
}

}  // namespace tenon::cache

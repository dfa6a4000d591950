// Cache kind `rotating`: the last keys and values of a row, for layers with a window under the
// `mlx` kernel family. A step of one token overwrites the oldest place of a ring; a longer one puts
// the ring into the order of time and appends, so that its first token still sees a whole window.
// Bits follow that order, so they depend on how tokens were cut into steps once the window is
// passed: mlx-lm's do. Source: mlx-lm models/cache.py (RotatingKVCache, keep = 0).
//
// Rollback: to any length while every token is still there. Later only to a mark: the ring from
// before the first step that forgot something is kept, and that step's tokens while it is the only
// one; those that stay are appended to the ring anew, as if the step had brought no others.
#include <algorithm>

#include "cache/row_map.h"
#include "cache/stock_attention.h"

namespace tenon::cache {

namespace {

constexpr int kSlabTokens = 256;

struct Ring {
  std::optional<mx::array> k, v;  // [1, K, places, D]; all or the first len are filled
  int len = 0;  // tokens seen
  int at = 0;  // the place behind the newest token

  int num_places() const { return k ? k->shape(2) : 0; }
  bool holds_all() const { return at == len; }
};

class RotatingCache final : public LayerCache {
 public:
  explicit RotatingCache(const LayerPlan& plan) : kv_(plan.kv), window_(plan.window) {}

  std::string signature() const override { return "kv:rotating-plain"; }
  double bytes_per_token() const override {
    return static_cast<double>(kv_.num_kv_heads) * (kv_.k_head_dim + kv_.v_head_dim) *
           mx::size_of(kv_.dtype);
  }
  uint64_t bytes() const override {
    uint64_t total = 0;
    for (const mx::array& x : arrays()) total += x.nbytes();
    for (const auto& [slot, row] : rows_)
      if (row.round && row.round->before)
        total += row.round->before->k->nbytes() + row.round->before->v->nbytes();
    return total;
  }
  uint64_t copies() const override { return copies_; }

  void open(int slot) override { rows_.open(slot, {}); }
  void close(int slot) override { rows_.close(slot); }
  int len(int slot) const override { return rows_.at(slot).ring.len; }

  mx::array attend(const ops::Qkv& qkv, ops::Rows rows, const ops::Attend& how) override {
    if (how.window > window_)
      throw std::logic_error(fmt::format("[cache.attend] a window of {} over a ring of {} tokens",
                                         how.window, window_));
    return attend_rows(qkv.q, rows, [&](const ops::RowSlice& slice, const mx::array& q) {
      Row& row = rows_.at(slice.slot);
      check_offset(slice, row.ring.len, qkv.k.has_value());
      if (!qkv.k)
        return attend_heads(q, filled(row.ring.k, row), filled(row.ring.v, row), how,
                            mask(slice, row.at_before, how));
      return append_and_attend(row, slice, q, qkv, how);
    });
  }

  void mark(int slot) override { rows_.at(slot).round.emplace(); }
  bool can_rollback(int slot, int len) const override;
  void rollback(int slot, int len) override;

  Snapshot save(int slot) const override {
    const Row& row = rows_.at(slot);
    Snapshot s{signature(), row.ring.len, row.ring.at, {}};
    if (row.ring.len > 0)
      s.parts = {to_part(filled(row.ring.k, row)), to_part(filled(row.ring.v, row))};
    return s;
  }
  Status load(int slot, const Snapshot& s) override;

  void collect(std::vector<mx::array>& out) const override {
    for (const mx::array& x : arrays()) out.push_back(x);
  }

 private:
  // Since a mark: the ring before the first step that forgot something, and what that step
  // appended, [1, K, L, D], until there is another.
  struct Round {
    std::optional<Ring> before;
    std::optional<mx::array> k, v;
  };
  struct Row {
    Ring ring;
    int at_before = 0;  // ring.at before the last step: masks are made then
    std::optional<Round> round;
  };

  mx::array append_and_attend(Row& row, const ops::RowSlice& slice, const mx::array& q,
                              const ops::Qkv& qkv, const ops::Attend& how);
  void append(Ring& ring, const mx::array& k, const mx::array& v);
  void append_one(Ring& ring, const mx::array& k, const mx::array& v);
  void append_many(Ring& ring, const mx::array& k, const mx::array& v);

  static mx::array filled(const std::optional<mx::array>& x, const Row& row) {
    return row.ring.len < x->shape(2) ? cut(*x, 0, row.ring.len) : *x;
  }
  Mask mask(const ops::RowSlice& slice, int at, const ops::Attend& how) const;

  // What a step makes: rings, and what rounds recorded.
  std::vector<mx::array> arrays() const {
    std::vector<mx::array> all;
    for (const auto& [slot, row] : rows_) {
      if (row.ring.k) all.insert(all.end(), {*row.ring.k, *row.ring.v});
      if (row.round && row.round->k) all.insert(all.end(), {*row.round->k, *row.round->v});
    }
    return all;
  }

  ops::KvShape kv_;
  int window_;
  RowMap<Row> rows_;
  uint64_t copies_ = 0;
};

// Places in the order of time, without those that were never filled.
mx::array in_order(const mx::array& x, const Ring& ring) {
  if (ring.at == x.shape(2)) return x;
  if (ring.holds_all()) return cut(x, 0, ring.at);
  return mx::concatenate({cut(x, ring.at, x.shape(2)), cut(x, 0, ring.at)}, 2);
}

mx::array without_first(const mx::array& x, int num) {
  return num > 0 ? cut(x, num, x.shape(2)) : x;
}

mx::array RotatingCache::append_and_attend(Row& row, const ops::RowSlice& slice, const mx::array& q,
                                           const ops::Qkv& qkv, const ops::Attend& how) {
  if (row.round && row.round->before) row.round->k = row.round->v = std::nullopt;
  // A ring that forgets nothing in this step needs no copy to go back.
  const bool forgets = !row.ring.holds_all() || row.ring.len >= window_;
  const bool records = row.round && !row.round->before && forgets;
  // What outlives the step must not keep the step's other rows alive.
  const bool outlives = records || row.ring.len == 0;
  const auto heads = [&](const mx::array& x) {
    const mx::array own = outlives ? true_copy(x, slice.start, slice.start + slice.len) : x;
    return mx::astype(heads_first(own, {0, outlives ? 0 : slice.start, slice.len}), kv_.dtype);
  };
  const mx::array k = heads(*qkv.k), v = heads(*qkv.v);
  if (records) *row.round = {row.ring, k, v};
  row.at_before = row.ring.at;
  append(row.ring, k, v);
  return attend_heads(q, filled(row.ring.k, row), filled(row.ring.v, row), how,
                      mask(slice, row.at_before, how));
}

void RotatingCache::append(Ring& ring, const mx::array& k, const mx::array& v) {
  const int num_new = k.shape(2);
  num_new == 1 ? append_one(ring, k, v) : append_many(ring, k, v);
  ring.len += num_new;
}

void RotatingCache::append_one(Ring& ring, const mx::array& k, const mx::array& v) {
  if (ring.len >= ring.num_places() && ring.num_places() < window_) {
    const auto grow = [&](std::optional<mx::array>& x, int width) {
      const int num = std::min(kSlabTokens, window_ - ring.len);
      const mx::array fresh = mx::zeros({1, kv_.num_kv_heads, num, width}, kv_.dtype);
      x = x ? mx::concatenate({*x, fresh}, 2) : fresh;
    };
    grow(ring.k, kv_.k_head_dim);
    grow(ring.v, kv_.v_head_dim);
    ring.at = ring.len;
  } else if (ring.num_places() > window_) {
    const int surplus = ring.num_places() - window_;
    ring.k = true_copy(without_first(*ring.k, surplus));
    ring.v = true_copy(without_first(*ring.v, surplus));
    ring.at = window_;
  } else {
    copies_ += is_shared(*ring.k) + is_shared(*ring.v);
  }
  if (ring.at == window_) ring.at = 0;
  write(ring.k, k, ring.at);
  write(ring.v, v, ring.at);
  ++ring.at;
}

void RotatingCache::append_many(Ring& ring, const mx::array& k, const mx::array& v) {
  if (!ring.k) {
    ring.k = k;
    ring.v = v;
  } else {
    const auto extend = [&](const mx::array& x, const mx::array& fresh) {
      const mx::array past = in_order(x, ring);
      return mx::concatenate({without_first(past, past.shape(2) - window_ + 1), fresh}, 2);
    };
    const mx::array keys = extend(*ring.k, k);
    ring.v = extend(*ring.v, v);
    ring.k = keys;
  }
  ring.at = ring.num_places();
}

// What mlx-lm's make_mask and create_causal_mask say of the same ring. `at`: before the step.
Mask RotatingCache::mask(const ops::RowSlice& slice, int at, const ops::Attend& how) const {
  if (slice.len > 1) {
    const int window = how.window > 0 ? how.window : window_;
    const int past = std::min(window_ - 1, slice.offset);
    if (past + slice.len > window || how.softcap > 0)
      return Mask::of(causal_mask(slice.len, past, window));
    return Mask::causal();
  }
  // A window narrower than the ring: the last `window` places behind the newest, wherever that is.
  if (how.window == 0 || how.window >= window_ || slice.offset < how.window) return Mask::none();
  const int num = slice.offset < window_ ? slice.offset + 1 : window_;
  const mx::array newest = mx::greater_equal(mx::arange(num), mx::array(num - how.window));
  return Mask::of(mx::roll(newest, at >= window_ ? 1 : at + 1));
}

bool RotatingCache::can_rollback(int slot, int len) const {
  const Row& row = rows_.at(slot);
  if (len == 0 || len == row.ring.len) return true;
  if (len < 0 || len > row.ring.len) return false;
  if (row.ring.holds_all()) return true;
  if (!row.round || !row.round->before) return false;
  const Ring& before = *row.round->before;
  return len == before.len || (len < before.len ? before.holds_all() : row.round->k.has_value());
}

void RotatingCache::rollback(int slot, int len) {
  Row& row = rows_.at(slot);
  Ring* before = row.round && row.round->before ? &*row.round->before : nullptr;
  if (!can_rollback(slot, len))
    refuse_rollback(
        len, row.ring.len,
        before ? fmt::format("{} (the mark){}, or 0", before->len, row.round->k ? " and up" : "")
               : "0: the window has passed, and no step was marked");
  const auto cut_to = [&](Ring& ring) {
    // A longer ring than the window would drop its first tokens at the next step.
    if (ring.num_places() > window_) {
      ring.k = true_copy(cut(*ring.k, 0, len));
      ring.v = true_copy(cut(*ring.v, 0, len));
    }
    ring.len = ring.at = len;
  };
  if (len == 0) {
    row.ring = {};
  } else if (len < row.ring.len && row.ring.holds_all()) {
    cut_to(row.ring);
  } else if (len < row.ring.len && len < before->len) {
    cut_to(row.ring = std::move(*before));
  } else if (len < row.ring.len) {
    row.ring = std::move(*before);
    const int keep = len - row.ring.len;
    if (keep > 0) append(row.ring, cut(*row.round->k, 0, keep), cut(*row.round->v, 0, keep));
  }
  row.round.reset();
}

Status RotatingCache::load(int slot, const Snapshot& s) {
  Row& row = rows_.at(slot);
  TENON_OK(check_snapshot(s, signature(), 2, row.ring.len));
  if (s.len == 0) return {};
  const mx::Shape& shape = s.parts[0].shape;
  const int places = shape.size() == 4 ? shape[2] : 0;
  const bool forgot = places < s.len;
  const bool fits = forgot ? places >= window_ && s.at >= 1 &&
                                 (places > window_ ? s.at == places : s.at <= places)
                           : places == s.len && s.at == s.len;
  if (!fits)
    return corrupt("snapshot: a ring of {} places, at {}, of {} tokens", places, s.at, s.len);
  Ring loaded{std::nullopt, std::nullopt, s.len, s.at};
  TENON_TRY(loaded.k,
            from_part(s.parts[0], {1, kv_.num_kv_heads, places, kv_.k_head_dim}, kv_.dtype));
  TENON_TRY(loaded.v,
            from_part(s.parts[1], {1, kv_.num_kv_heads, places, kv_.v_head_dim}, kv_.dtype));
  row.ring = std::move(loaded);
  return {};
}

}  // namespace

Result<std::unique_ptr<LayerCache>> make_rotating(const LayerPlan& plan, const ops::Kernels&) {
  if (plan.window < 1) return invalid("cache kind rotating needs a window, not {}", plan.window);
  if (plan.kv.bits > 0)
    return unsupported(
        "keys and values of {} bits in a layer with a window: the mlx kernels keep them plain",
        plan.kv.bits);
  return std::unique_ptr<LayerCache>(new RotatingCache(plan));
}

}  // namespace tenon::cache

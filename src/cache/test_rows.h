// For tests: what a plan for each kind looks like, and a sequence of tokens to feed it.
#pragma once
#include <gtest/gtest.h>

#include "base/handover.h"
#include "cache/cache.h"

namespace tenon::cache {

constexpr int kHeads = 4, kKv = 2, kDim = 32;
constexpr int kTokens = 320;  // of the sequence; positions behind it start over

struct Variant {
  std::string name;
  std::string kernels;
  LayerPlan plan;
  ops::Attend how;
  // Once the window is passed, bits follow how tokens were cut into steps: the ring's places are in
  // another order then, and stock sums run over places.
  bool cuts_show = false;

  bool recurs() const { return plan.delta.num_v_heads > 0; }
  // State that only grows goes back to any length without a mark.
  bool grows() const { return !recurs() && (plan.window == 0 || plan.kind == "full"); }
  int window() const { return plan.window > 0 ? plan.window : 100; }
};
inline void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }

inline ops::KvShape plain_kv(int bits = 0) {
  return {kKv, kDim, kDim, mx::float32, bits, bits > 0 ? 32 : 64};
}
constexpr ops::DeltaShape kDelta{.num_k_heads = 2, .num_v_heads = 6, .k_dim = 32, .v_dim = 8};

// Every kind of the registry; one without a line here gets a plain plan.
inline std::vector<Variant> variants() {
  const ops::Attend all{0.25f}, capped{0.25f, 0, 5.0f};
  const std::vector<Variant> stated = {
      {"full", "mlx", {"full", plain_kv()}, all},
      {"full_capped", "mlx", {"full", plain_kv()}, capped},
      {"full_window", "mlx", {"full", plain_kv(), 24}, {0.25f, 24}},
      {"quantized8", "mlx", {"quantized", plain_kv(8)}, all},
      {"quantized4", "mlx", {"quantized", plain_kv(4)}, all},
      {"rotating", "mlx", {"rotating", plain_kv(), 24}, {0.25f, 24}, true},
      {"rotating_slabs", "mlx", {"rotating", plain_kv(), 270}, {0.25f, 270}, true},
      {"rotating_capped", "mlx", {"rotating", plain_kv(), 24}, {0.25f, 24, 5.0f}, true},
      {"paged", "tenon", {"paged", plain_kv()}, all},
      {"paged_capped", "tenon", {"paged", plain_kv()}, capped},
      {"paged_window", "tenon", {"paged", plain_kv(), 70}, {0.25f, 70}},
      {"paged_quantized8", "tenon", {"paged", plain_kv(8)}, all},
      {"paged_quantized4", "tenon", {"paged", plain_kv(4), 70}, {0.25f, 70}},
      {"recurrent", "mlx", {"recurrent", plain_kv(), 0, kDelta}, {}},
      {"recurrent", "tenon", {"recurrent", plain_kv(), 0, kDelta}, {}},
  };
  std::vector<Variant> found;
  for (const std::string& kind : cache_kinds()) {
    const size_t before = found.size();
    for (const Variant& v : stated)
      if (v.plan.kind == kind) found.push_back(v);
    if (found.size() == before) found.push_back({kind, "auto", {kind, plain_kv()}, all});
  }
  for (Variant& v : found)
    if (v.kernels == "mlx") v.name += "_stock";
  return found;
}

inline mx::array random(mx::Shape shape, int seed, float scale = 1) {
  return mx::random::normal(shape, mx::float32, 0, scale, mx::random::key(seed));
}

// Compared by MLX itself: its buffers move between its threads, and only it knows the order.
inline bool same_bits(const mx::array& a, const mx::array& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const auto bits = [](const mx::array& x) { return mx::view(mx::contiguous(x), mx::uint8); };
  const bool same = mx::all(mx::equal(bits(a), bits(b))).item<bool>();
  Handover::returned();
  return same;
}
inline float distance(const mx::array& a, const mx::array& b) {
  const float most = mx::max(mx::abs(a - b)).item<float>();
  Handover::returned();
  return most;
}
inline mx::array rows_of(const mx::array& x, int from, int to) {
  mx::Shape start(x.ndim(), 0), stop = x.shape();
  start[0] = from;
  stop[0] = to;
  return mx::slice(x, start, stop);
}

inline void settle(const LayerCache& cache, const mx::array& out) {
  std::vector<mx::array> state{out};
  cache.collect(state);
  mx::eval(state);
  Handover::returned();
}

// One layer's caches, and the tokens that all its rows read.
class Layer {
 public:
  explicit Layer(Variant what)
      : variant(std::move(what)), kernels(*ops::make_kernels({.name = variant.kernels})) {
    mx::eval(q, k, v, other_q, qkv, b, a, mixer.conv, mixer.a_log, mixer.dt_bias);
  }

  std::unique_ptr<LayerCache> make() const {
    auto made = make_layer_cache(variant.plan, *kernels);
    if (!made.ok()) throw std::runtime_error(made.error().message);
    return std::move(made).value();
  }

  // Token i of a row is token i of the sequence. Not evaluated.
  mx::array graph(LayerCache& cache, std::vector<ops::RowSlice> rows) const {
    const mx::array ids = positions(rows);
    if (variant.recurs()) {
      const mx::array none = mx::zeros({1, 1});
      return cache.advance({mx::take(qkv, ids, 0), none, mx::take(b, ids, 0), mx::take(a, ids, 0)},
                           mixer, rows);
    }
    return cache.attend({mx::take(q, ids, 0), mx::take(k, ids, 0), mx::take(v, ids, 0), {}}, rows,
                        variant.how);
  }
  // The same tokens' other queries over what is there.
  mx::array look(LayerCache& cache, std::vector<ops::RowSlice> rows) const {
    return cache.attend({mx::take(other_q, positions(rows), 0), {}, {}, {}}, rows, variant.how);
  }
  mx::array step(LayerCache& cache, std::vector<ops::RowSlice> rows) const {
    const mx::array out = graph(cache, std::move(rows));
    settle(cache, out);
    return out;
  }
  // Tokens [from, to) to one row.
  mx::array feed(LayerCache& cache, int slot, int from, int to) const {
    return step(cache, {{slot, 0, to - from, from}});
  }
  // Tokens [len, to) in steps of at most `chunk`.
  void advance_to(LayerCache& cache, int slot, int to, int chunk) const {
    for (int at = cache.len(slot); at < to; at += chunk)
      feed(cache, slot, at, std::min(to, at + chunk));
  }

  static mx::array positions(const std::vector<ops::RowSlice>& rows) {
    std::vector<int32_t> ids;
    for (const ops::RowSlice& row : rows)
      for (int i = 0; i < row.len; ++i) ids.push_back((row.offset + i) % kTokens);
    return mx::array(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
  }

  const Variant variant;
  const std::shared_ptr<const ops::Kernels> kernels;
  const mx::array q = random({kTokens, kHeads, kDim}, 1), k = random({kTokens, kKv, kDim}, 2),
                  v = random({kTokens, kKv, kDim}, 3), other_q = random({kTokens, kHeads, kDim}, 4);
  const mx::array qkv = random({kTokens, kDelta.conv_dim()}, 5),
                  b = random({kTokens, kDelta.num_v_heads}, 6),
                  a = random({kTokens, kDelta.num_v_heads}, 7);
  const ops::DeltaMixer mixer{.shape = kDelta,
                              .conv = random({kDelta.conv_dim(), kDelta.taps, 1}, 8, 0.5f),
                              .a_log = mx::abs(random({kDelta.num_v_heads}, 9)),
                              .dt_bias = random({kDelta.num_v_heads}, 10)};
};

}  // namespace tenon::cache

// What recurrent layers compute, one token at a time (declared in cpu.h): the gated delta rule, its
// gates and the short convolution before it. Source: https://arxiv.org/abs/2412.06464.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/recurrent.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Vectors of value dimensions that go down the state together, so that their chains overlap.
constexpr int kTogether = 4;

template <int kCount>
HWY_INLINE void delta_columns(const DeltaArgs& a, int dim, int left) {
  const F32 d;
  const VF decay = hn::Set(d, a.decay);
  VF seen[kCount], y[kCount], delta[kCount];
  TENON_UNROLL for (int v = 0; v < kCount; ++v) seen[v] = y[v] = hn::Zero(d);
  for (int k = 0; k < a.k_dim; ++k) {
    const float* row = a.state + static_cast<size_t>(k) * a.v_dim + dim;
    const VF key = hn::Set(d, a.key[k]);
    TENON_UNROLL for (int v = 0; v < kCount; ++v) seen[v] =
        hn::MulAdd(hn::Mul(load_some(row + v * kWidth, left - v * kWidth), decay), key, seen[v]);
  }
  TENON_UNROLL for (int v = 0; v < kCount; ++v) delta[v] =
      hn::Mul(hn::Sub(load_some(a.value + dim + v * kWidth, left - v * kWidth), seen[v]),
              hn::Set(d, a.beta));
  for (int k = 0; k < a.k_dim; ++k) {
    float* row = a.state + static_cast<size_t>(k) * a.v_dim + dim;
    const VF key = hn::Set(d, a.key[k]), query = hn::Set(d, a.query[k]);
    TENON_UNROLL for (int v = 0; v < kCount; ++v) {
      const VF kept = hn::Mul(load_some(row + v * kWidth, left - v * kWidth), decay);
      const VF state = hn::MulAdd(delta[v], key, kept);
      store_some(state, row + v * kWidth, left - v * kWidth);
      y[v] = hn::MulAdd(state, query, y[v]);
    }
  }
  TENON_UNROLL for (int v = 0; v < kCount; ++v)
      store_some(y[v], a.y + dim + v * kWidth, left - v * kWidth);
}

inline void delta(const DeltaArgs& a) {
  int dim = 0;
  for (; dim + kTogether * kWidth <= a.v_dim; dim += kTogether * kWidth)
    delta_columns<kTogether>(a, dim, a.v_dim - dim);
  for (; dim < a.v_dim; dim += kWidth) delta_columns<1>(a, dim, a.v_dim - dim);
}

inline void delta_gates(const float* a, const float* b, const float* a_log, const float* dt_bias,
                        int n, float* decay, float* beta) {
  for (int at = 0; at < n; at += kWidth) {
    const int left = n - at;
    const auto some = [&](const float* x) HWY_ATTR { return load_some(x + at, left); };
    const VF step = softplus(hn::Add(some(a), some(dt_bias)));
    const VF gate = sigmoid(some(b));
    store_some(exp(hn::Neg(hn::Mul(exp(some(a_log)), step))), decay + at, left);
    store_some(gate, beta + at, left);
  }
}

inline void conv(const float* const* rows, const float* weights, int taps, int n, float* y) {
  const F32 d;
  for (int at = 0; at < n; at += kWidth) {
    VF sum = hn::Zero(d);
    for (int i = 0; i < taps; ++i)
      sum = hn::MulAdd(load_some(rows[i] + at, n - at),
                       load_some(weights + static_cast<size_t>(i) * n + at, n - at), sum);
    store_some(silu(sum), y + at, n - at);
  }
}

inline void fill_recurrent(Table& table) {
  table.delta = delta;
  table.delta_gates = delta_gates;
  table.conv = conv;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {
void add_recurrent(Table& table, int64_t target) { TENON_FOR_TARGET(target, fill_recurrent) }
}  // namespace tenon::cpu
#endif

// Logits and routers' scores, a row at a time (declared in cpu.h): soft cap, softmax, argmax,
// weights.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/scores.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// Vectors that are compared side by side, so that comparisons need not wait for each other.
constexpr int kTogether = 8;

struct Largest {
  float value;  // -inf where there is none; of zeros any; where has_nan: any
  bool has_nan;
};
inline Largest largest_of(const float* x, int n) {
  const F32 d;
  const VF lowest = hn::Set(d, -HUGE_VALF);
  VF best[kTogether];
  for (VF& b : best) b = lowest;
  auto nan = hn::Lt(lowest, lowest);
  const auto look = [&](VF value, VF& into) HWY_ATTR {
    nan = hn::Or(nan, hn::IsNaN(value));
    into = hn::Max(value, into);
  };
  int i = 0;
  for (; i + kTogether * kWidth <= n; i += kTogether * kWidth)
    TENON_UNROLL for (int v = 0; v < kTogether; ++v) look(load(x + i + v * kWidth), best[v]);
  for (; i + kWidth <= n; i += kWidth) look(load(x + i), best[0]);
  for (; i < n; ++i) look(hn::Set(d, x[i]), best[0]);
  for (int v = 1; v < kTogether; ++v) best[0] = hn::Max(best[0], best[v]);
  return {hn::GetLane(hn::MaxOfLanes(d, best[0])), !hn::AllFalse(d, nan)};
}

inline void softcap(float cap, const float* x, int n, float* y) {
  const VF c = set(cap);
  map2(x, x, n, y, [&](VF v, VF) { return hn::Mul(c, tanh(hn::Div(v, c))); });
}

inline void softmax(const float* x, int n, float* y) {
  const Largest largest = largest_of(x, n);
  const VF max = set(largest.has_nan ? std::nanf("") : largest.value);
  map2(x, x, n, y, [&](VF v, VF) { return exp(hn::Sub(v, max)); });
  const VF sum = set(sum_lanes(y, n, 0, [](VF e, VF lane) { return hn::Add(lane, e); }));
  map2(y, y, n, y, [&](VF e, VF) { return hn::Div(e, sum); });
}

inline void exps(const float* x, float shift, float divisor, int n, float* y) {
  const VF s = set(shift), d = set(divisor);
  map2(x, x, n, y, [&](VF v, VF) { return exp(hn::Div(hn::Sub(v, s), d)); });
}

inline int32_t argmax(const float* x, int n) {
  const Largest largest = largest_of(x, n);
  if (largest.has_nan || largest.value == -HUGE_VALF) return -1;
  const VF value = set(largest.value);
  int i = 0;
  while (i + kWidth <= n && hn::AllFalse(F32(), hn::Eq(load(x + i), value))) i += kWidth;
  while (x[i] != largest.value) ++i;
  return i;
}

inline void fill_scores(Table& table) {
  table.softcap = softcap;
  table.softmax = softmax;
  table.exps = exps;
  table.argmax = argmax;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {
void add_scores(Table& table, int64_t target) { TENON_FOR_TARGET(target, fill_scores) }
}  // namespace tenon::cpu
#endif

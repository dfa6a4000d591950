// Vector helpers of the CPU kernels, compiled once a target (no include guard of the usual kind).
// A `lane` is one of 16 virtual lanes: kVectors vectors of the target's width side by side.
#if defined(TENON_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_VECTORS_INL_H_
#undef TENON_CPU_VECTORS_INL_H_
#else
#define TENON_CPU_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = 16;
using F32 = hn::CappedTag<float, kLanes>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Repartition<int16_t, I32>;
using U16 = hn::Repartition<uint16_t, I32>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
using BF16 = hn::Rebind<hwy::bfloat16_t, F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;

constexpr int kWidth = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kVectors = kLanes / kWidth;

// The compiler keeps arrays of vectors in registers only when it unrolls the loops over them.
#define TENON_UNROLL _Pragma("GCC unroll 16")

HWY_INLINE VF load(const float* at) { return hn::LoadU(F32(), at); }
HWY_INLINE void store(VF v, float* at) { hn::StoreU(v, F32(), at); }
HWY_INLINE VF load_half(const void* at) {
  return hn::PromoteTo(F32(), hn::LoadU(F16(), static_cast<const hwy::float16_t*>(at)));
}
HWY_INLINE VF load_brain(const void* at) {
  return hn::PromoteTo(F32(), hn::LoadU(BF16(), static_cast<const hwy::bfloat16_t*>(at)));
}

// n <= kWidth elements of x, zeros behind them; and the way back.
HWY_INLINE VF load_some(const float* x, int n) {
  if (n >= kWidth) return load(x);
  float pad[kLanes] = {};
  std::memcpy(pad, x, n * sizeof(float));
  return load(pad);
}
HWY_INLINE void store_some(VF v, float* y, int n) {
  if (n >= kWidth) return store(v, y);
  float pad[kLanes];
  store(v, pad);
  std::memcpy(y, pad, n * sizeof(float));
}

// y[i] = f(a[i], b[i]) for i in [0, n).
template <class F>
HWY_INLINE void map2(const float* a, const float* b, int n, float* y, const F& f) {
  for (int i = 0; i < n; i += kWidth)
    store_some(f(load_some(a + i, n - i), load_some(b + i, n - i)), y + i, n - i);
}

// The fixed tree over 16 lanes.
HWY_INLINE float tree(float (&lanes)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}

// The tree over 16 lanes, where x[k] made of lane k % 16 what add(x[k], lane) is. `absent` is a
// value that adds nothing.
template <class F>
HWY_INLINE float sum_lanes(const float* x, int n, float absent, const F& add) {
  VF sums[kVectors];
  for (VF& s : sums) s = hn::Zero(F32());
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    TENON_UNROLL for (int v = 0; v < kVectors; ++v) sums[v] =
        add(load(x + i + v * kWidth), sums[v]);
  float lanes[kLanes];
  if (i < n) {
    for (float& lane : lanes) lane = absent;
    std::memcpy(lanes, x + i, (n - i) * sizeof(float));
    for (int v = 0; v < kVectors; ++v) sums[v] = add(load(lanes + v * kWidth), sums[v]);
  }
  for (int v = 0; v < kVectors; ++v) store(sums[v], lanes + v * kWidth);
  return tree(lanes);
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

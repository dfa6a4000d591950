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

// exp to about 1 ulp; 0 below -87, so that no result is subnormal.
HWY_INLINE VF exp(VF x) {
  const F32 d;
  const auto set = [&](float v) { return hn::Set(d, v); };
  const VF n = hn::Round(hn::Mul(x, set(1.44269504f)));
  VF r = hn::MulAdd(n, set(-0x1.62e4p-1f), x);
  r = hn::MulAdd(n, set(-0x1.7f7d1cp-20f), r);
  VF p = set(1.9875691500e-4f);
  for (float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = hn::MulAdd(p, r, set(c));
  const VF y = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), set(1.0f));
  // Where x is out of range the conversion may be anything: replaced below.
  const VI scaled = hn::Add(hn::BitCast(I32(), y), hn::ShiftLeft<23>(hn::NearestInt(n)));
  VF result = hn::BitCast(d, scaled);
  result = hn::IfThenElse(hn::Lt(x, set(-87.0f)), hn::Zero(d), result);
  result = hn::IfThenElse(hn::Gt(x, set(88.72283f)), set(HUGE_VALF), result);
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

HWY_INLINE VF tanh(VF x) {
  const F32 d;
  const auto set = [&](float v) { return hn::Set(d, v); };
  const VF magnitude = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF p = set(-5.70498872745e-3f);
  for (float c : {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f})
    p = hn::MulAdd(p, z, set(c));
  const VF near_zero = hn::MulAdd(hn::Mul(p, z), x, x);
  const VF doubled = hn::Mul(set(2.0f), magnitude);
  const VF far = hn::Sub(set(1.0f), hn::Div(set(2.0f), hn::Add(exp(doubled), set(1.0f))));
  return hn::IfThenElse(hn::Lt(magnitude, set(0.625f)), near_zero, hn::CopySign(far, x));
}

HWY_INLINE VF silu(VF x) {
  const VF one = hn::Set(F32(), 1.0f);
  return hn::Div(x, hn::Add(one, exp(hn::Neg(x))));
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

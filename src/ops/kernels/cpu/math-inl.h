// Functions of real numbers on vectors, compiled once a target (guarded like vectors-inl.h). Each
// has a scalar twin in math_reference.h: the same operations in the same order. Polynomials are
// minimax fits in float64 whose coefficients were rounded one by one; math_test.cpp measures the
// errors. NaN gives NaN.
#if defined(TENON_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENON_CPU_MATH_INL_H_
#undef TENON_CPU_MATH_INL_H_
#else
#define TENON_CPU_MATH_INL_H_
#endif

#include "ops/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

HWY_INLINE VF set(float v) { return hn::Set(F32(), v); }

// exp to about 1 ulp; 0 below -87, so that no result is subnormal.
HWY_INLINE VF exp(VF x) {
  const F32 d;
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

HWY_INLINE VF silu(VF x) { return hn::Div(x, hn::Add(set(1.0f), exp(hn::Neg(x)))); }

// Up to 1 by a polynomial; from there 1 - exp(-q), q a polynomial near -log(1 - erf). At 4 erf
// is 1.
HWY_INLINE VF erf(VF x) {
  const VF z = hn::Mul(x, x);
  VF p = set(0x1.4771fep-14f);
  for (float c : {-0x1.a3515ep-11f, 0x1.53f224p-8f, -0x1.b7f71ap-6f, 0x1.ce2ce6p-4f,
                  -0x1.81273ep-2f, 0x1.06eba8p-3f})
    p = hn::MulAdd(p, z, set(c));
  const VF near_zero = hn::MulAdd(p, x, x);
  const VF magnitude = hn::Abs(x);
  const VF t = hn::IfThenElse(hn::Lt(magnitude, set(4.0f)), magnitude, set(4.0f));
  VF q = set(-0x1.86d74cp-13f);
  for (float c : {0x1.825830p-9f, -0x1.65ca82p-6f, 0x1.a652f2p-4f, 0x1.46baf2p-1f, 0x1.2088eap+0f,
                  0x1.661cacp-12f})
    q = hn::MulAdd(q, t, set(c));
  const VF far = hn::CopySign(hn::Sub(set(1.0f), exp(hn::Neg(q))), x);
  return hn::IfThenElse(hn::Gt(magnitude, set(1.0f)), far, near_zero);
}

// log(1 + y) for y in [0, 1]: above 1/2 it is log 2 + log(1 + (y - 1) / 2), whose argument is
// exact.
HWY_INLINE VF log1p(VF y) {
  const auto high = hn::Gt(y, set(0.5f));
  const VF r = hn::IfThenElse(high, hn::Mul(set(0.5f), hn::Sub(y, set(1.0f))), y);
  VF p = set(-0x1.71e32cp-5f);
  for (float c : {0x1.acf4a8p-4f, -0x1.0d98f0p-3f, 0x1.28807ap-3f, -0x1.54ed96p-3f, 0x1.99699ep-3f,
                  -0x1.00004ap-2f, 0x1.5555a4p-2f})
    p = hn::MulAdd(p, r, set(c));
  const VF square = hn::Mul(r, r);
  const VF log = hn::MulAdd(hn::Mul(square, r), p, hn::MulAdd(set(-0.5f), square, r));
  return hn::IfThenElse(high, hn::Add(log, set(0.693147181f)), log);
}

// log(1 + exp(x))
HWY_INLINE VF softplus(VF x) {
  const VF positive = hn::IfThenElseZero(hn::Gt(x, hn::Zero(F32())), x);
  return hn::Add(positive, log1p(exp(hn::Neg(hn::Abs(x)))));
}

HWY_INLINE VF sigmoid(VF x) { return hn::Div(set(1.0f), hn::Add(set(1.0f), exp(hn::Neg(x)))); }

HWY_INLINE VF gelu(VF x) {
  const VF t = erf(hn::Mul(x, set(0.707106781f)));
  return hn::Mul(x, hn::Mul(set(0.5f), hn::Add(set(1.0f), t)));
}

HWY_INLINE VF gelu_tanh(VF x) {
  const VF u = hn::MulAdd(hn::Mul(hn::Mul(set(0.044715f), x), x), x, x);
  const VF t = tanh(hn::Mul(set(0.797884583f), u));
  return hn::Mul(hn::Mul(set(0.5f), x), hn::Add(set(1.0f), t));
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

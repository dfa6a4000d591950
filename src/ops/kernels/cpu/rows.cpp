// Operations on single rows (declared in cpu.h): quantize, norms, sums, rotation.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr uint32_t kInfinityBits = 0x7F800000;
constexpr float kSmallest = 0x1p-100f;  // below: the reciprocal of a scale would overflow
constexpr float kCodeMax = 32767.0f;

// The largest magnitude as bits: unlike a float maximum it sees NaN, on every target alike.
HWY_INLINE uint32_t largest_bits(const float* x, int n) {
  const I32 d;
  VI largest = hn::Zero(d);
  for (int i = 0; i < n; i += kWidth)
    largest = hn::Max(largest, hn::And(hn::BitCast(d, load(x + i)), hn::Set(d, 0x7FFFFFFF)));
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest)));
}

HWY_INLINE int32_t encode_group(const float* x, int n, float inverse, int16_t* codes) {
  const I32 d;
  const hn::Rebind<int16_t, I32> d16;
  VI sum = hn::Zero(d);
  for (int i = 0; i < n; i += kWidth) {
    const VI code = hn::NearestInt(hn::Mul(load(x + i), hn::Set(F32(), inverse)));
    sum = hn::Add(sum, code);
    hn::StoreU(hn::DemoteTo(d16, code), d16, codes + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

inline void quantize(const float* x, int in, int group, const QuantizedRow& row) {
  for (int g = 0; g * group < in; ++g) {
    const float* at = x + g * group;
    int16_t* codes = row.codes + g * group;
    const uint32_t bits = largest_bits(at, group);
    float largest;
    std::memcpy(&largest, &bits, sizeof(largest));
    row.code_sum[g] = 0;
    if (bits >= kInfinityBits || largest < kSmallest) {
      std::memset(codes, 0, group * sizeof(*codes));
      row.scale[g] = row.sum[g] = bits >= kInfinityBits ? std::nanf("") : 0.0f;
      continue;
    }
    row.scale[g] = largest / kCodeMax;
    row.code_sum[g] = encode_group(at, group, kCodeMax / largest, codes);
    row.sum[g] = row.scale[g] * static_cast<float>(row.code_sum[g]);
  }
}

inline void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  const float squares =
      sum_lanes(x, n, 0, [](VF value, VF lane) { return hn::MulAdd(value, value, lane); });
  const float mean = squares / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  const VF scale = hn::Set(F32(), inverse);
  if (weight == nullptr)
    map2(x, x, n, y, [&](VF a, VF) { return hn::Mul(a, scale); });
  else
    map2(x, weight, n, y, [&](VF a, VF w) { return hn::Mul(hn::Mul(a, scale), w); });
}

inline void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n,
                       float* y) {
  const F32 d;
  const auto count = static_cast<float>(n);
  const float mean =
      sum_lanes(x, n, 0, [](VF value, VF lane) { return hn::Add(lane, value); }) / count;
  const VF center = hn::Set(d, mean);
  const float squares = sum_lanes(x, n, mean, [&](VF value, VF lane) {
    const VF c = hn::Sub(value, center);
    return hn::MulAdd(c, c, lane);
  });
  const VF inverse = hn::Set(d, 1.0f / std::sqrt(squares / count + eps));
  map2(x, x, n, y, [&](VF value, VF) { return hn::Mul(hn::Sub(value, center), inverse); });
  if (weight != nullptr) map2(y, weight, n, y, [](VF a, VF w) { return hn::Mul(a, w); });
  if (bias != nullptr) map2(y, bias, n, y, [](VF a, VF b) { return hn::Add(a, b); });
}

inline void scale(float s, const float* x, int n, float* y) {
  const VF factor = hn::Set(F32(), s);
  map2(x, x, n, y, [&](VF a, VF) { return hn::Mul(factor, a); });
}

inline void add_scaled(float scale, const float* x, int n, float* y) {
  const VF s = hn::Set(F32(), scale);
  map2(x, y, n, y, [&](VF a, VF into) { return hn::MulAdd(s, a, into); });
}

inline void add(const float* a, const float* b, int n, float* y) {
  map2(a, b, n, y, [](VF p, VF q) { return hn::Add(p, q); });
}

HWY_INLINE void rotate_pair(VF& a, VF& b, VF cos, VF sin) {
  const VF turned = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = turned;
}

inline void rotate(float* x, const float* cos, const float* sin, int dims, bool traditional) {
  const int half = dims / 2;
  int i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    VF a, b;
    if (traditional) {
      hn::LoadInterleaved2(F32(), x + 2 * i, a, b);
      rotate_pair(a, b, load(cos + i), load(sin + i));
      hn::StoreInterleaved2(a, b, F32(), x + 2 * i);
    } else {
      a = load(x + i), b = load(x + half + i);
      rotate_pair(a, b, load(cos + i), load(sin + i));
      store(a, x + i), store(b, x + half + i);
    }
  }
  for (; i < half; ++i) {
    float& at_a = traditional ? x[2 * i] : x[i];
    float& at_b = traditional ? x[2 * i + 1] : x[half + i];
    VF a = hn::Set(F32(), at_a), b = hn::Set(F32(), at_b);
    rotate_pair(a, b, hn::Set(F32(), cos[i]), hn::Set(F32(), sin[i]));
    at_a = hn::GetLane(a), at_b = hn::GetLane(b);
  }
}

inline void fill_rows(Table& table) {
  table.quantize = quantize;
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.scale = scale;
  table.add_scaled = add_scaled;
  table.add = add;
  table.rotate = rotate;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {
void add_rows(Table& table, int64_t target) { TENON_FOR_TARGET(target, fill_rows) }
}  // namespace tenon::cpu
#endif

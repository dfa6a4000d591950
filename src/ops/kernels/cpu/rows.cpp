// Operations on single rows (declared in cpu.h): quantize, norms, gates, rotation.
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

HWY_INLINE float sum_of_squares(const float* x, int n) {
  const F32 d;
  VF sums[kVectors];
  for (VF& s : sums) s = hn::Zero(d);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int v = 0; v < kVectors; ++v) {
      const VF value = load(x + i + v * kWidth);
      sums[v] = hn::MulAdd(value, value, sums[v]);
    }
  if (i < n) {  // zeros add nothing
    float pad[kLanes] = {};
    std::memcpy(pad, x + i, (n - i) * sizeof(float));
    for (int v = 0; v < kVectors; ++v) {
      const VF value = load(pad + v * kWidth);
      sums[v] = hn::MulAdd(value, value, sums[v]);
    }
  }
  float lanes[kLanes];
  for (int v = 0; v < kVectors; ++v) store(sums[v], lanes + v * kWidth);
  return tree(lanes);
}

inline void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  const VF scale = hn::Set(F32(), inverse);
  if (weight == nullptr)
    map2(x, x, n, y, [&](VF a, VF) { return hn::Mul(a, scale); });
  else
    map2(x, weight, n, y, [&](VF a, VF w) { return hn::Mul(hn::Mul(a, scale), w); });
}

HWY_INLINE VF gelu_tanh(VF x) {
  const auto set = [](float v) { return hn::Set(F32(), v); };
  const VF u = hn::MulAdd(hn::Mul(hn::Mul(set(0.044715f), x), x), x, x);
  const VF t = tanh(hn::Mul(set(0.797884583f), u));
  return hn::Mul(hn::Mul(set(0.5f), x), hn::Add(set(1.0f), t));
}

inline void gated(Activation act, const float* gate, const float* up, int n, float* y) {
  if (act == Activation::silu)
    map2(gate, up, n, y, [](VF g, VF u) { return hn::Mul(silu(g), u); });
  else
    map2(gate, up, n, y, [](VF g, VF u) { return hn::Mul(gelu_tanh(g), u); });
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
  table.gated = gated;
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

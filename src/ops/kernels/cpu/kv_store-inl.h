// Writing a token's keys and values into a page (layout: kv_pool.h), compiled once a target.
#include <algorithm>

#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// n floats at `from` to `stride` apart elements at `to`.
inline void scatter_f32(const float* from, int n, std::byte* to, size_t stride) {
  for (int i = 0; i < n; ++i) std::memcpy(to + i * stride * 4, from + i, 4);
}

inline void scatter_f16(const float* from, int n, std::byte* to, size_t stride) {
#if HWY_TARGET == HWY_SSE4  // has no such conversion, and Highway's stand-in truncates
  for (int i = 0; i < n; ++i) store_f16(from[i], to + i * stride * 2);
#else
  hwy::float16_t half[kLanes];
  for (int i = 0; i < n; i += kLanes) {
    const int count = std::min(kLanes, n - i);
    float pad[kLanes] = {};
    std::memcpy(pad, from + i, count * sizeof(float));
    for (int v = 0; v < kLanes; v += kWidth)
      hn::StoreU(hn::DemoteTo(F16(), load(pad + v)), F16(), half + v);
    for (int j = 0; j < count; ++j) std::memcpy(to + (i + j) * stride * 2, half + j, 2);
  }
#endif
}

struct Scale {
  float scale, bias;
};

// The scale of the n elements at x for codes up to `code_max`. Both the edge, which is the end of
// their range with the larger magnitude, and zero are then codes.
inline Scale scale_of(const float* x, int n, float code_max) {
  const F32 d;
  VF largest = load(x), smallest = largest, strange = hn::Zero(d);
  for (int i = 0; i < n; i += kWidth) {
    const VF value = load(x + i);
    largest = hn::Max(largest, value);
    smallest = hn::Min(smallest, value);
    strange = hn::Add(strange, hn::Mul(value, hn::Zero(d)));  // NaN from what is not finite
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  const float min = hn::GetLane(hn::MinOfLanes(d, smallest));
  const float range = max - min;
  if (!hn::AllTrue(d, hn::Eq(strange, strange)) || !(range < HUGE_VALF)) return {NAN, NAN};
  const bool falls = std::fabs(min) > std::fabs(max);
  const float edge = falls ? min : max;
  const float width = std::max(range / code_max, kKvScaleMin), scale = falls ? width : -width;
  const float steps = std::nearbyint(edge / scale);
  return steps == 0 ? Scale{scale, 0} : Scale{edge / steps, edge};
}

// codes = nearest even of (x - bias) / scale in [0, code_max]; what is no number is 0.
inline void encode(const float* x, int n, Scale s, float code_max, uint8_t* codes) {
  const F32 d;
  const hn::Rebind<uint8_t, I32> d8;
  const VF scale = hn::Set(d, s.scale), bias = hn::Set(d, s.bias), top = hn::Set(d, code_max);
  for (int i = 0; i < n; i += kWidth) {
    const VF code = hn::Round(hn::Div(hn::Sub(load(x + i), bias), scale));
    const VF positive = hn::IfThenElseZero(hn::Gt(code, hn::Zero(d)), code);
    const VF bounded = hn::IfThenElse(hn::Lt(positive, top), positive, top);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(I32(), bounded)), d8, codes + i);
  }
}

// Codes and scales of the n elements of one token's head.
struct CodedHead {
  uint8_t code[kHeadMax];
  Scale scale[kHeadMax / kKvGroupMin];

  CodedHead(const KvLayout& kv, const float* x, int n) {
    const auto code_max = static_cast<float>((1 << kv_bits(kv.type)) - 1);
    for (int i = 0; i < n; i += kv.group) {
      scale[i / kv.group] = scale_of(x + i, kv.group, code_max);
      encode(x + i, kv.group, scale[i / kv.group], code_max, code + i);
    }
  }
  void store_scales(std::byte* to, int num_groups, int slot) const {
    for (int g = 0; g < num_groups; ++g) {
      std::memcpy(to + (size_t{2} * g * kPageTokens + slot) * 4, &scale[g].scale, 4);
      std::memcpy(to + ((size_t{2} * g + 1) * kPageTokens + slot) * 4, &scale[g].bias, 4);
    }
  }
};

inline std::byte pair(uint8_t low, uint8_t high) { return static_cast<std::byte>(low | high << 4); }

inline void store_codes(const KvLayout& kv, std::byte* k_at, std::byte* v_at, int slot,
                        const float* k, const float* v) {
  const CodedHead keys(kv, k, kv.k_dim), values(kv, v, kv.v_dim);
  keys.store_scales(k_at + kv.scales_offset(kv.k_dim), kv.k_dim / kv.group, slot);
  values.store_scales(v_at + kv.scales_offset(kv.v_dim), kv.v_dim / kv.group, slot);
  if (kv.type == KvType::q8) {
    for (int d = 0; d < kv.k_dim; ++d) k_at[d * kPageTokens + slot] = std::byte{keys.code[d]};
    std::memcpy(v_at + static_cast<size_t>(slot) * kv.v_dim, values.code, kv.v_dim);
    return;
  }
  for (int d = 0; d < kv.k_dim; d += 2)
    k_at[d / 2 * kPageTokens + slot] = pair(keys.code[d], keys.code[d + 1]);
  std::byte* row = v_at + static_cast<size_t>(slot) * kv.v_dim / 2;
  for (int d = 0; d < kv.v_dim; d += 2 * kLanes)
    for (int i = 0; i < kLanes; ++i)
      row[d / 2 + i] = pair(values.code[d + i], values.code[d + kLanes + i]);
}

inline void store_token(const KvLayout& kv, std::byte* page, int slot, const float* k,
                        const float* v) {
  for (int head = 0; head < kv.num_kv_heads; ++head, k += kv.k_dim, v += kv.v_dim) {
    std::byte *k_at = page + kv.k_offset(head), *v_at = page + kv.v_offset(head);
    const size_t row = static_cast<size_t>(slot) * kv.v_dim;
    switch (kv.type) {
      case KvType::f32:
        scatter_f32(k, kv.k_dim, k_at + slot * 4, kPageTokens);
        scatter_f32(v, kv.v_dim, v_at + row * 4, 1);
        break;
      case KvType::f16:
        scatter_f16(k, kv.k_dim, k_at + slot * 2, kPageTokens);
        scatter_f16(v, kv.v_dim, v_at + row * 2, 1);
        break;
      default: store_codes(kv, k_at, v_at, slot, k, v);
    }
  }
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

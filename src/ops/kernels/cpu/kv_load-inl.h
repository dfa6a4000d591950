// Reading keys and values out of a page (layout: kv_pool.h) as float vectors, compiled once a
// target.
#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

// One vector of bytes: a code each, or two of half a byte.
HWY_INLINE VI load_bytes(const std::byte* at) {
  const hn::Rebind<uint8_t, I32> d8;
  return hn::PromoteTo(I32(), hn::LoadU(d8, reinterpret_cast<const uint8_t*>(at)));
}

HWY_INLINE VF dequantize(VI code, VF scale, VF bias) {
  return hn::Add(hn::Mul(scale, hn::ConvertTo(F32(), code)), bias);
}

HWY_INLINE const float* scales_at(const std::byte* scales, int group, int key) {
  return reinterpret_cast<const float*>(scales) + size_t{2} * group * kPageTokens + key;
}

// 16 keys of a head, a lane a key.
template <KvType kType>
class Keys {
 public:
  // Dimensions to take together: they may share bytes.
  static constexpr int kStep = kType == KvType::q4 ? 2 : 1;

  HWY_INLINE Keys(const KvLayout& kv, const std::byte* head, int key)
      : at_(head), scales_(head + kv.scales_offset(kv.k_dim)), key_(key) {}
  // Before dimensions of that group are loaded.
  HWY_INLINE void enter(int group) {
    if constexpr (is_quantized(kType)) TENON_UNROLL for (int v = 0; v < kVectors; ++v) {
        scale_[v] = load(scales_at(scales_, group, key_) + v * kWidth);
        bias_[v] = load(scales_at(scales_, group, key_) + kPageTokens + v * kWidth);
      }
  }
  // Dimension d + i of vector v; d is a multiple of kStep.
  HWY_INLINE VF load_at(int d, int i, int v) const {
    const int at = d / kStep * kPageTokens + key_ + v * kWidth;
    if constexpr (kType == KvType::f32) {
      return load(reinterpret_cast<const float*>(at_) + at);
    } else if constexpr (kType == KvType::f16) {
      return load_half(at_ + at * 2);
    } else {
      VI code = load_bytes(at_ + at);
      if constexpr (kType == KvType::q4)
        code = i == 1 ? hn::ShiftRight<4>(code) : hn::And(code, hn::Set(I32(), 15));
      return dequantize(code, scale_[v], bias_[v]);
    }
  }

 private:
  const std::byte *at_, *scales_;
  int key_;
  VF scale_[kVectors], bias_[kVectors];
};

// Values of dimensions [dim, dim + 16) of a head, a lane a dimension.
template <KvType kType>
class Values {
 public:
  HWY_INLINE Values(const KvLayout& kv, const std::byte* head, int dim) : v_dim_(kv.v_dim) {
    if constexpr (kType == KvType::q4) {
      // High halves are not shifted but scaled: powers of two are exact.
      const bool high = dim / kLanes % 2 == 1;
      mask_ = hn::Set(I32(), high ? 0xF0 : 0x0F);
      factor_ = high ? 1.0f / 16 : 1.0f;
      at_ = head + dim / (2 * kLanes) * kLanes;
    } else {
      at_ = head + dim * (kv_bits(kType) / 8);
    }
    if constexpr (is_quantized(kType))
      scales_ = scales_at(head + kv.scales_offset(v_dim_), dim / kv.group, 0);
  }
  // Before vectors of that key are loaded.
  HWY_INLINE void enter(int key) {
    if constexpr (is_quantized(kType)) {
      scale_ = hn::Set(F32(), kType == KvType::q4 ? scales_[key] * factor_ : scales_[key]);
      bias_ = hn::Set(F32(), scales_[kPageTokens + key]);
    }
  }
  HWY_INLINE VF load_at(int key, int v) const {
    const int at = key * v_dim_;
    if constexpr (kType == KvType::f32) {
      return load(reinterpret_cast<const float*>(at_) + at + v * kWidth);
    } else if constexpr (kType == KvType::f16) {
      return load_half(at_ + (at + v * kWidth) * 2);
    } else if constexpr (kType == KvType::q8) {
      return dequantize(load_bytes(at_ + at + v * kWidth), scale_, bias_);
    } else {
      return dequantize(hn::And(load_bytes(at_ + at / 2 + v * kWidth), mask_), scale_, bias_);
    }
  }

 private:
  const std::byte* at_;
  const float* scales_ = nullptr;
  int v_dim_;
  float factor_ = 1;
  VI mask_;
  VF scale_, bias_;
};

// The last dimensions of an odd head width, one at a time: float types.
template <KvType kType>
HWY_INLINE float load_value(const std::byte* head, int at) {
  if constexpr (kType == KvType::f16) return load_f16(head + at * 2);
  float value;
  std::memcpy(&value, head + at * 4, sizeof(value));
  return value;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

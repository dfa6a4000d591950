// 16- and 8-bit floats in memory, one at a time: for loading and for the reference. Kernels convert
// whole vectors. Rounding is to nearest even. No MLX.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/kernels/cpu/packed.h"

namespace tenon::cpu {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3FF;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return bits_as<float>(sign | wide << 23 | mantissa << 13);
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = bits_as<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7E00;  // NaN
  if (magnitude >= 0x477FF000) return sign | 0x7C00;  // rounds to infinity
  if (magnitude < 0x38800000) {  // subnormal: a multiple of 2^-24
    const float steps = std::nearbyint(std::ldexp(bits_as<float>(magnitude), 24));
    return sign | static_cast<uint16_t>(steps);
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

inline float load_f16(const std::byte* at) {
  uint16_t h;
  std::memcpy(&h, at, 2);
  return f16_to_f32(h);
}
inline void store_f16(float value, std::byte* at) {
  const uint16_t h = f32_to_f16(value);
  std::memcpy(at, &h, 2);
}
inline float load_bf16(const std::byte* at) {
  uint16_t h;
  std::memcpy(&h, at, 2);
  return bits_as<float>(static_cast<uint32_t>(h) << 16);
}
// `value` must be a bfloat16 already: packing never rounds.
inline void store_bf16(float value, std::byte* at) {
  const auto h = static_cast<uint16_t>(bits_as<uint32_t>(value) >> 16);
  std::memcpy(at, &h, 2);
}

// e4m3: as a float16 with four exponent bits, 2^8 too small. Its only NaNs are 0x7F and 0xFF.
inline float e4m3_to_f32(uint8_t v) {
  if ((v & 0x7F) == 0x7F) return NAN;
  return f16_to_f32(static_cast<uint16_t>((v & 0x80) << 8 | (v & 0x7F) << 7)) * 256.0f;
}

// Twice the value of an e2m1 code.
constexpr int8_t kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The integer an integer code stands for, its zero point taken off.
inline int code_value(const Packing& p, uint8_t code) {
  return p.code == CodeType::fp4 ? kFp4Doubled[code] : code - p.zero;
}

inline float load_code(CodeType type, const std::byte* at) {
  float value = 0;
  switch (type) {
    case CodeType::f32: std::memcpy(&value, at, 4); return value;
    case CodeType::f16: return load_f16(at);
    case CodeType::bf16: return load_bf16(at);
    case CodeType::fp8: return e4m3_to_f32(static_cast<uint8_t>(*at));
    default: return 0;
  }
}

}  // namespace tenon::cpu

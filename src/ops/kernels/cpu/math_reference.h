// The scalar twins of the functions of vectors-inl.h and math-inl.h: the same operations in the
// same order.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/kernels/cpu/half.h"

namespace tenon::cpu::reference {

constexpr int kLanes = 16;

inline float tree(float (&lanes)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

inline float exp(float x) {
  if (std::isnan(x)) return x;
  if (x > 88.72283f) return HUGE_VALF;
  if (x < -87.0f) return 0;
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(n, -0x1.62e4p-1f, x);
  r = std::fma(n, -0x1.7f7d1cp-20f, r);
  float p = 1.9875691500e-4f;
  for (float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = std::fma(p, r, c);
  const float y = std::fma(p, r * r, r) + 1.0f;
  return bits_as<float>(bits_as<uint32_t>(y) + (static_cast<uint32_t>(static_cast<int>(n)) << 23));
}

inline float tanh(float x) {
  const float magnitude = std::fabs(x);
  if (magnitude < 0.625f) {
    const float z = x * x;
    float p = -5.70498872745e-3f;
    for (float c : {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f})
      p = std::fma(p, z, c);
    return std::fma(p * z, x, x);
  }
  return std::copysign(1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f), x);
}

inline float erf(float x) {
  const float magnitude = std::fabs(x);
  if (magnitude > 1.0f) {
    const float t = magnitude < 4.0f ? magnitude : 4.0f;
    float q = -0x1.86d74cp-13f;
    for (float c : {0x1.825830p-9f, -0x1.65ca82p-6f, 0x1.a652f2p-4f, 0x1.46baf2p-1f, 0x1.2088eap+0f,
                    0x1.661cacp-12f})
      q = std::fma(q, t, c);
    return std::copysign(1.0f - exp(-q), x);
  }
  const float z = x * x;
  float p = 0x1.4771fep-14f;
  for (float c : {-0x1.a3515ep-11f, 0x1.53f224p-8f, -0x1.b7f71ap-6f, 0x1.ce2ce6p-4f,
                  -0x1.81273ep-2f, 0x1.06eba8p-3f})
    p = std::fma(p, z, c);
  return std::fma(p, x, x);
}

inline float log1p(float y) {
  const bool high = y > 0.5f;
  const float r = high ? 0.5f * (y - 1.0f) : y;
  float p = -0x1.71e32cp-5f;
  for (float c : {0x1.acf4a8p-4f, -0x1.0d98f0p-3f, 0x1.28807ap-3f, -0x1.54ed96p-3f, 0x1.99699ep-3f,
                  -0x1.00004ap-2f, 0x1.5555a4p-2f})
    p = std::fma(p, r, c);
  const float square = r * r;
  const float log = std::fma(square * r, p, std::fma(-0.5f, square, r));
  return high ? log + 0.693147181f : log;
}

inline float softplus(float x) { return (x > 0 ? x : 0.0f) + log1p(exp(-std::fabs(x))); }

inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

inline float silu(float x) { return x / (1.0f + exp(-x)); }

inline float gelu(float x) { return x * (0.5f * (1.0f + erf(x * 0.707106781f))); }

inline float gelu_tanh(float x) {
  const float u = std::fma(0.044715f * x * x, x, x);
  return 0.5f * x * (1.0f + tanh(0.797884583f * u));
}

}  // namespace tenon::cpu::reference

#include "ops/kernels/cpu/reference.h"

#include <algorithm>
#include <cstring>

#include "ops/kernels/cpu/math_reference.h"

namespace tenon::cpu {

namespace reference {

namespace {

void quantize(const float* x, int in, int group, const QuantizedRow& row) {
  for (int g = 0; g * group < in; ++g) {
    const float* at = x + g * group;
    int16_t* codes = row.codes + g * group;
    uint32_t bits = 0;
    for (int i = 0; i < group; ++i) bits = std::max(bits, bits_as<uint32_t>(at[i]) & 0x7FFFFFFF);
    const float largest = bits_as<float>(bits);
    const bool finite = bits < 0x7F800000;
    row.code_sum[g] = 0;
    if (!finite || largest < 0x1p-100f) {
      std::fill(codes, codes + group, int16_t{0});
      row.scale[g] = row.sum[g] = finite ? 0.0f : std::nanf("");
      continue;
    }
    const float inverse = 32767.0f / largest;
    row.scale[g] = largest / 32767.0f;
    for (int i = 0; i < group; ++i) {
      codes[i] = static_cast<int16_t>(std::nearbyint(at[i] * inverse));
      row.code_sum[g] += codes[i];
    }
    row.sum[g] = row.scale[g] * static_cast<float>(row.code_sum[g]);
  }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  float lanes[kLanes] = {};
  for (int k = 0; k < n; ++k) lanes[k % kLanes] = std::fma(x[k], x[k], lanes[k % kLanes]);
  const float mean = tree(lanes) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int k = 0; k < n; ++k)
    y[k] = weight != nullptr ? x[k] * inverse * weight[k] : x[k] * inverse;
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int n,
                float* y) {
  float lanes[kLanes] = {};
  for (int k = 0; k < n; ++k) lanes[k % kLanes] += x[k];
  const float mean = tree(lanes) / static_cast<float>(n);
  for (float& lane : lanes) lane = 0;
  for (int k = 0; k < n; ++k) {
    const float c = x[k] - mean;
    lanes[k % kLanes] = std::fma(c, c, lanes[k % kLanes]);
  }
  const float inverse = 1.0f / std::sqrt(tree(lanes) / static_cast<float>(n) + eps);
  for (int k = 0; k < n; ++k) {
    y[k] = (x[k] - mean) * inverse;
    if (weight != nullptr) y[k] = y[k] * weight[k];
    if (bias != nullptr) y[k] = y[k] + bias[k];
  }
}

void scale(float s, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = s * x[i];
}

void add_scaled(float scale, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = std::fma(scale, x[i], y[i]);
}

void add(const float* a, const float* b, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void rotate(float* x, const float* cos, const float* sin, int dims, bool traditional) {
  const int half = dims / 2;
  for (int i = 0; i < half; ++i) {
    float& a = traditional ? x[2 * i] : x[i];
    float& b = traditional ? x[2 * i + 1] : x[half + i];
    const float turned = std::fma(-b, sin[i], a * cos[i]);
    b = std::fma(a, sin[i], b * cos[i]);
    a = turned;
  }
}

}  // namespace

}  // namespace reference

const Table& reference_table() {
  using namespace reference;
  static const Table kTable{.name = "reference",
                            .quantize = quantize,
                            .rms_norm = rms_norm,
                            .layer_norm = layer_norm,
                            .gated = gated,
                            .activate = activate,
                            .sigmoid_gate = sigmoid_gate,
                            .softcap = softcap,
                            .scale = scale,
                            .softmax = softmax,
                            .exps = exps,
                            .argmax = argmax,
                            .add_scaled = add_scaled,
                            .conv = conv,
                            .delta = delta,
                            .delta_gates = delta_gates,
                            .add = add,
                            .linear = linear,
                            .attend = attend,
                            .merge = merge,
                            .finish = finish,
                            .rotate = rotate,
                            .store_token = store_token};
  return kTable;
}

}  // namespace tenon::cpu

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

namespace {

void store_float(KvType type, float value, std::byte* at, size_t i) {
  if (type == KvType::f16) return store_f16(value, at + i * 2);
  std::memcpy(at + i * 4, &value, 4);
}

// The codes of one group; scale and bias go to `scale` and a page's tokens behind it.
void quantize(const float* x, int n, int bits, uint8_t* codes, std::byte* scale_at) {
  const auto code_max = static_cast<float>((1 << bits) - 1);
  const float max = *std::max_element(x, x + n), min = *std::min_element(x, x + n);
  const bool finite = std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
  const bool falls = std::fabs(min) > std::fabs(max);
  const float edge = falls ? min : max;
  float scale = std::max((max - min) / code_max, kKvScaleMin), bias = 0;
  if (!falls) scale = -scale;
  const float steps = std::nearbyint(edge / scale);
  if (steps != 0) scale = edge / steps, bias = edge;
  if (!finite || !std::isfinite(max - min)) scale = bias = NAN;
  store_float(KvType::f32, scale, scale_at, 0);
  store_float(KvType::f32, bias, scale_at, kPageTokens);
  for (int i = 0; i < n; ++i) {
    const float code = std::nearbyint((x[i] - bias) / scale);
    codes[i] = static_cast<uint8_t>(code > 0 ? std::min(code, code_max) : 0.0f);
  }
}

// The codes of one token's `width` keys or values, which begin at `at`; its scales are stored.
std::vector<uint8_t> quantize_row(const KvLayout& kv, const float* x, int width, int slot,
                                  std::byte* at) {
  std::vector<uint8_t> codes(width);
  std::byte* scales = at + kv.scales_offset(width) + slot * sizeof(float);
  for (int i = 0; i < width; i += kv.group)
    quantize(x + i, kv.group, kv_bits(kv.type), &codes[i],
             scales + size_t{2} * (i / kv.group) * kPageTokens * sizeof(float));
  return codes;
}

void put_nibble(std::byte& both, int code, bool high) {
  both = high ? (both & std::byte{15}) | std::byte(code << 4)
              : (both & std::byte{240}) | std::byte(code);
}

void store_codes(const KvLayout& kv, std::byte* k_at, std::byte* v_at, int slot, const float* k,
                 const float* v) {
  const auto keys = quantize_row(kv, k, kv.k_dim, slot, k_at);
  const auto values = quantize_row(kv, v, kv.v_dim, slot, v_at);
  const size_t row = static_cast<size_t>(slot) * kv.v_dim;
  for (int d = 0; d < kv.k_dim; ++d)
    if (kv.type == KvType::q8)
      k_at[d * kPageTokens + slot] = std::byte{keys[d]};
    else
      put_nibble(k_at[d / 2 * kPageTokens + slot], keys[d], d % 2 == 1);
  for (int d = 0; d < kv.v_dim; ++d)
    if (kv.type == KvType::q8)
      v_at[row + d] = std::byte{values[d]};
    else
      put_nibble(v_at[row / 2 + d / 32 * 16 + d % 16], values[d], d % 32 >= 16);
}

}  // namespace

void store_token(const KvLayout& kv, std::byte* page, int slot, const float* k, const float* v) {
  for (int head = 0; head < kv.num_kv_heads; ++head, k += kv.k_dim, v += kv.v_dim) {
    std::byte *k_at = page + kv.k_offset(head), *v_at = page + kv.v_offset(head);
    if (is_quantized(kv.type)) {
      store_codes(kv, k_at, v_at, slot, k, v);
      continue;
    }
    for (int d = 0; d < kv.k_dim; ++d) store_float(kv.type, k[d], k_at, d * kPageTokens + slot);
    for (int d = 0; d < kv.v_dim; ++d) store_float(kv.type, v[d], v_at, slot * kv.v_dim + d);
  }
}

}  // namespace tenon::cpu::reference

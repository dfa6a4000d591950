#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/math_reference.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

namespace {

// A code of 4 bits, the high half of the byte or the low one.
int nibble(std::byte both, bool high) { return std::to_integer<int>(both) >> (high ? 4 : 0) & 15; }

float load_float(KvType type, const std::byte* at, size_t i) {
  return load_code(type == KvType::f16 ? CodeType::f16 : CodeType::f32, at + i * kv_bits(type) / 8);
}

// What `code` stands for: dimension d of the token at `slot` among the keys or values, `width`
// wide, that begin at `at`.
float dequantize(const KvLayout& kv, const std::byte* at, int width, int slot, int d, int code) {
  const std::byte* scales = at + kv.scales_offset(width);
  const size_t i = size_t{2} * (d / kv.group) * kPageTokens + slot;
  return load_float(KvType::f32, scales, i) * static_cast<float>(code) +
         load_float(KvType::f32, scales, i + kPageTokens);
}

float load_key(const KvLayout& kv, const std::byte* at, int slot, int d) {
  if (!is_quantized(kv.type)) return load_float(kv.type, at, d * kPageTokens + slot);
  const int code = kv.type == KvType::q8 ? std::to_integer<int>(at[d * kPageTokens + slot])
                                         : nibble(at[d / 2 * kPageTokens + slot], d % 2 == 1);
  return dequantize(kv, at, kv.k_dim, slot, d, code);
}

float load_value(const KvLayout& kv, const std::byte* at, int slot, int d) {
  const size_t row = static_cast<size_t>(slot) * kv.v_dim;
  if (!is_quantized(kv.type)) return load_float(kv.type, at, row + d);
  const int code = kv.type == KvType::q8 ? std::to_integer<int>(at[row + d])
                                         : nibble(at[row / 2 + d / 32 * 16 + d % 16], d % 32 >= 16);
  return dequantize(kv, at, kv.v_dim, slot, d, code);
}

// The state that one tile gives query i; keys [begin, end) of the tile are seen.
void attend_tile(const AttendArgs& a, int i, int tile, int begin, int end) {
  const KvLayout& kv = *a.kv;
  const std::byte* keys = a.pages[tile] + kv.k_offset(a.kv_head);
  const std::byte* values = a.pages[tile] + kv.v_offset(a.kv_head);
  float e[kPageTokens] = {};
  float max = -HUGE_VALF;
  for (int key = begin; key < end; ++key) {
    float score = 0;
    for (int d = 0; d < kv.k_dim; ++d)
      score = std::fma(a.q[i][d], load_key(kv, keys, key, d), score);
    if (a.softcap > 0) score = a.softcap * tanh(score / a.softcap);
    e[key] = score;
    max = score > max ? score : max;
  }
  max += 0.0f;  // of two zeros the positive one
  for (int key = begin; key < end; ++key) e[key] = exp(e[key] - max);
  float lanes[kLanes];
  for (int j = 0; j < kLanes; ++j) lanes[j] = e[j] + e[j + 16] + e[j + 32] + e[j + 48];
  std::vector<float> part(kv.v_dim, 0.0f);
  for (int d = 0; d < kv.v_dim; ++d)
    for (int key = begin; key < end; ++key)
      part[d] = std::fma(e[key], load_value(kv, values, key, d), part[d]);
  merge(a.max + i, a.sum + i, a.values + static_cast<size_t>(i) * kv.v_dim, max, tree(lanes),
        part.data(), kv.v_dim);
}

}  // namespace

void attend(const AttendArgs& a) {
  for (int i = 0; i < a.num_queries; ++i) {
    a.max[i] = -HUGE_VALF;
    a.sum[i] = 0;
    std::fill_n(a.values + static_cast<size_t>(i) * a.kv->v_dim, a.kv->v_dim, 0.0f);
    const int last = a.positions[i];
    const int first = a.window > 0 ? std::max(0, last - a.window + 1) : 0;
    for (int tile = a.tile_begin; tile < a.tile_end; ++tile) {
      const int begin = std::max(first - tile * kPageTokens, 0);
      const int end = std::min(last + 1 - tile * kPageTokens, kPageTokens);
      if (begin < end) attend_tile(a, i, tile, begin, end);
    }
  }
}

void merge(float* max, float* sum, float* values, float part_max, float part_sum,
           const float* part_values, int v_dim) {
  if (part_sum == 0) return;
  if (*sum == 0) {
    *max = part_max, *sum = part_sum;
    std::copy_n(part_values, v_dim, values);
    return;
  }
  const float larger = part_max > *max ? part_max : *max;
  const float keep = exp(*max - larger), take = exp(part_max - larger);
  *max = larger;
  *sum = std::fma(part_sum, take, *sum * keep);
  for (int d = 0; d < v_dim; ++d) values[d] = std::fma(part_values[d], take, values[d] * keep);
}

void finish(float sum, const float* values, int v_dim, float* out) {
  for (int d = 0; d < v_dim; ++d) out[d] = values[d] / sum;
}

}  // namespace tenon::cpu::reference

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/math_reference.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

namespace {

float load_kv(const KvLayout& kv, const std::byte* at, size_t i) {
  if (kv.type == KvType::f16) return load_f16(at + i * 2);
  float value;
  std::memcpy(&value, at + i * 4, 4);
  return value;
}

void store_kv(const KvLayout& kv, float value, std::byte* at, size_t i) {
  kv.type == KvType::f16 ? store_f16(value, at + i * 2)
                         : static_cast<void>(std::memcpy(at + i * 4, &value, 4));
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
      score = std::fma(a.q[i][d], load_kv(kv, keys, d * kPageTokens + key), score);
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
      part[d] =
          std::fma(e[key], load_kv(kv, values, static_cast<size_t>(key) * kv.v_dim + d), part[d]);
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

void store_token(const KvLayout& kv, std::byte* page, int slot, const float* k, const float* v) {
  for (int head = 0; head < kv.num_kv_heads; ++head) {
    for (int d = 0; d < kv.k_dim; ++d)
      store_kv(kv, k[head * kv.k_dim + d], page + kv.k_offset(head), d * kPageTokens + slot);
    for (int d = 0; d < kv.v_dim; ++d)
      store_kv(kv, v[head * kv.v_dim + d], page + kv.v_offset(head), slot * kv.v_dim + d);
  }
}

}  // namespace tenon::cpu::reference

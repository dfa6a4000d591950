// The inner loops of attention.cpp, compiled once a target.
#include <algorithm>

#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/kv_load-inl.h"
#include "ops/kernels/cpu/kv_store-inl.h"
#include "ops/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

constexpr int kQueriesMax = 4;  // queries that share one loaded key or value

// What each query sees of a tile: keys [begin, end) of its 64; empty when begin >= end.
struct Seen {
  int begin, end;
};
HWY_INLINE Seen seen_of(int position, int window, int tile) {
  const int first = window > 0 ? std::max(0, position - window + 1) : 0;
  return {std::max(first - tile * kPageTokens, 0),
          std::min(position + 1 - tile * kPageTokens, kPageTokens)};
}

// scores[q][key] of all 64 keys; those that no query sees may be skipped.
template <KvType kType, int kQueries>
HWY_INLINE void score_tile(const KvLayout& kv, const std::byte* head, const float* const* q,
                           Seen any, float (*scores)[kPageTokens]) {
  using Block = Keys<kType>;
  const int group = is_quantized(kType) ? kv.group : kv.k_dim;
  for (int key = any.begin / kLanes * kLanes; key < any.end; key += kLanes) {
    Block keys(kv, head, key);
    VF acc[kQueries][kVectors];
    TENON_UNROLL for (int i = 0; i < kQueries; ++i) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
        acc[i][v] = hn::Zero(F32());
    for (int begin = 0; begin < kv.k_dim; begin += group) {
      keys.enter(begin / group);
      for (int d = begin; d < begin + group; d += Block::kStep)
        TENON_UNROLL for (int j = 0; j < Block::kStep; ++j)
            TENON_UNROLL for (int v = 0; v < kVectors; ++v) {
          const VF k = keys.load_at(d, j, v);
          TENON_UNROLL for (int i = 0; i < kQueries; ++i) acc[i][v] =
              hn::MulAdd(hn::Set(F32(), q[i][d + j]), k, acc[i][v]);
        }
    }
    TENON_UNROLL for (int i = 0; i < kQueries; ++i) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
        store(acc[i][v], scores[i] + key + v * kWidth);
  }
}

HWY_INLINE hn::Mask<F32> is_seen(int key, Seen s) {
  const VI index = hn::Iota(I32(), key);
  const auto inside =
      hn::And(hn::Gt(index, hn::Set(I32(), s.begin - 1)), hn::Lt(index, hn::Set(I32(), s.end)));
  return hn::RebindMask(F32(), inside);
}

// Soft-caps one query's scores and turns them into e[key], 0 where unseen. NaN is never a maximum.
HWY_INLINE float weigh(float* scores, Seen s, float softcap, float& sum) {
  const F32 d;
  const VF lowest = hn::Set(d, -HUGE_VALF);
  VF largest = lowest;
  for (int key = 0; key < kPageTokens; key += kWidth) {
    VF score = load(scores + key);
    if (softcap > 0)
      score = hn::Mul(hn::Set(d, softcap), tanh(hn::Div(score, hn::Set(d, softcap))));
    score = hn::IfThenElse(is_seen(key, s), score, lowest);
    largest = hn::IfThenElse(hn::Gt(score, largest), score, largest);
    store(score, scores + key);
  }
  float lanes[kLanes] = {};
  store(largest, lanes);
  // Which of two zeros came first depends on lanes: + 0 makes it the positive one.
  const float max = *std::max_element(lanes, lanes + kWidth) + 0.0f;
  for (int key = 0; key < kPageTokens; key += kWidth) {
    const VF e = exp(hn::Sub(load(scores + key), hn::Set(d, max)));
    store(hn::IfThenElseZero(is_seen(key, s), e), scores + key);
  }
  for (int j = 0; j < kLanes; j += kWidth) {
    VF lane = load(scores + j);
    for (int key = kLanes; key < kPageTokens; key += kLanes)
      lane = hn::Add(lane, load(scores + key + j));
    store(lane, lanes + j);
  }
  sum = tree(lanes);
  return max;
}

// values[q][dim..dim+16) of one tile. Keys that all queries see are loaded once; a key that a query
// does not see never meets it, whatever lies there.
template <KvType kType, int kQueries>
HWY_INLINE void add_values(const KvLayout& kv, const std::byte* head, int dim, const Seen* seen,
                           const float (*e)[kPageTokens], float (*values)[kLanes]) {
  Values<kType> block(kv, head, dim);
  VF acc[kQueries][kVectors];
  TENON_UNROLL for (int i = 0; i < kQueries; ++i) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
      acc[i][v] = hn::Zero(F32());
  const auto alone = [&](int i, int begin, int end) HWY_ATTR {
    for (int key = begin; key < end; ++key) {
      block.enter(key);
      for (int v = 0; v < kVectors; ++v)
        acc[i][v] = hn::MulAdd(hn::Set(F32(), e[i][key]), block.load_at(key, v), acc[i][v]);
    }
  };
  int begin = 0, end = kPageTokens;
  for (int i = 0; i < kQueries; ++i) {
    begin = std::max(begin, seen[i].begin);
    end = std::min(end, seen[i].end);
  }
  if (begin >= end) begin = end = kPageTokens;  // nothing in common: all alone
  TENON_UNROLL for (int i = 0; i < kQueries; ++i)
      alone(i, seen[i].begin, std::min(begin, seen[i].end));
  for (int key = begin; key < end; ++key) {
    block.enter(key);
    TENON_UNROLL for (int v = 0; v < kVectors; ++v) {
      const VF value = block.load_at(key, v);
      TENON_UNROLL for (int i = 0; i < kQueries; ++i) acc[i][v] =
          hn::MulAdd(hn::Set(F32(), e[i][key]), value, acc[i][v]);
    }
  }
  TENON_UNROLL for (int i = 0; i < kQueries; ++i) alone(i, end, seen[i].end);
  TENON_UNROLL for (int i = 0; i < kQueries; ++i) TENON_UNROLL for (int v = 0; v < kVectors; ++v)
      store(acc[i][v], values[i] + v * kWidth);
}

// The last dimensions of an odd head width, one at a time.
template <KvType kType>
HWY_INLINE float add_value(const std::byte* head, int v_dim, int dim, Seen seen, const float* e) {
  VF acc = hn::Zero(F32());
  for (int key = seen.begin; key < seen.end; ++key) {
    const float value = load_value<kType>(head, key * v_dim + dim);
    acc = hn::MulAdd(hn::Set(F32(), e[key]), hn::Set(F32(), value), acc);
  }
  return hn::GetLane(acc);
}

inline void merge(float* max, float* sum, float* values, float part_max, float part_sum,
                  const float* part_values, int v_dim) {
  if (part_sum == 0) return;
  if (*sum == 0) {
    *max = part_max, *sum = part_sum;
    std::memcpy(values, part_values, v_dim * sizeof(float));
    return;
  }
  const F32 d;
  const float larger = part_max > *max ? part_max : *max;
  const VF keep = exp(hn::Set(d, *max - larger)), take = exp(hn::Set(d, part_max - larger));
  *max = larger;
  *sum = hn::GetLane(hn::MulAdd(hn::Set(d, part_sum), take, hn::Mul(hn::Set(d, *sum), keep)));
  map2(values, part_values, v_dim, values,
       [&](VF into, VF part) { return hn::MulAdd(part, take, hn::Mul(into, keep)); });
}

inline void finish(float sum, const float* values, int v_dim, float* out) {
  const VF divisor = hn::Set(F32(), sum);
  map2(values, values, v_dim, out, [&](VF v, VF) { return hn::Div(v, divisor); });
}

// One tile for up to four queries, those that see some of it; merged into their states.
template <KvType kType, int kQueries>
void attend_tile(const AttendArgs& a, const int* which, int tile) {
  const std::byte* page = a.pages[tile];
  const float* q[kQueries];
  Seen seen[kQueries], any{kPageTokens, 0};
  for (int i = 0; i < kQueries; ++i) {
    q[i] = a.q[which[i]];
    seen[i] = seen_of(a.positions[which[i]], a.window, tile);
    any = {std::min(any.begin, seen[i].begin), std::max(any.end, seen[i].end)};
  }
  alignas(64) float e[kQueries][kPageTokens] = {};
  score_tile<kType, kQueries>(*a.kv, page + a.kv->k_offset(a.kv_head), q, any, e);
  float max[kQueries], sum[kQueries];
  for (int i = 0; i < kQueries; ++i) max[i] = weigh(e[i], seen[i], a.softcap, sum[i]);

  const int v_dim = a.kv->v_dim;
  const std::byte* v = page + a.kv->v_offset(a.kv_head);
  alignas(64) float part[kQueries][kHeadMax];
  int dim = 0;
  for (; dim + kLanes <= v_dim; dim += kLanes) {
    float block[kQueries][kLanes];
    add_values<kType, kQueries>(*a.kv, v, dim, seen, e, block);
    for (int i = 0; i < kQueries; ++i) std::memcpy(part[i] + dim, block[i], sizeof(block[i]));
  }
  if constexpr (!is_quantized(kType))
    for (; dim < v_dim; ++dim)
      for (int i = 0; i < kQueries; ++i)
        part[i][dim] = add_value<kType>(v, v_dim, dim, seen[i], e[i]);
  for (int i = 0; i < kQueries; ++i) {
    const int w = which[i];
    merge(a.max + w, a.sum + w, a.values + static_cast<size_t>(w) * v_dim, max[i], sum[i], part[i],
          v_dim);
  }
}

template <KvType kType>
void attend_typed(const AttendArgs& a) {
  using Function = void (*)(const AttendArgs&, const int*, int);
  constexpr Function kFunctions[kQueriesMax] = {attend_tile<kType, 1>, attend_tile<kType, 2>,
                                                attend_tile<kType, 3>, attend_tile<kType, 4>};
  for (int tile = a.tile_begin; tile < a.tile_end; ++tile) {
    int which[kQueriesMax], n = 0;
    for (int i = 0; i < a.num_queries; ++i) {
      const Seen s = seen_of(a.positions[i], a.window, tile);
      if (s.begin < s.end) which[n++] = i;
      if (n == kQueriesMax || (n > 0 && i + 1 == a.num_queries)) {
        kFunctions[n - 1](a, which, tile);
        n = 0;
      }
    }
  }
}

inline void attend(const AttendArgs& a) {
  for (int i = 0; i < a.num_queries; ++i) a.max[i] = -HUGE_VALF, a.sum[i] = 0;
  std::memset(a.values, 0, static_cast<size_t>(a.num_queries) * a.kv->v_dim * sizeof(float));
  switch (a.kv->type) {
    case KvType::f32: return attend_typed<KvType::f32>(a);
    case KvType::f16: return attend_typed<KvType::f16>(a);
    case KvType::q8: return attend_typed<KvType::q8>(a);
    case KvType::q4: return attend_typed<KvType::q4>(a);
  }
}

inline void fill_attention(Table& table) {
  table.attend = attend;
  table.merge = merge;
  table.finish = finish;
  table.store_token = store_token;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

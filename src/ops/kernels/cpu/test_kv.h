// Rows of random keys and values for the tests of attention, and what their pages hold, read
// without the kernels. Header only. Thread: one.
#pragma once
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {

// Keys (or values) `width` wide that begin at `at`, of all slots: as stored, as floats.
inline void append_raw(const KvLayout& kv, const std::byte* at, int width,
                       std::vector<float>& all) {
  const std::byte* const scales = at + kv.scales_offset(width);
  const CodeType type = kv.type == KvType::f16 ? CodeType::f16 : CodeType::f32;
  if (!is_quantized(kv.type)) {
    for (; at < scales; at += kv_bits(kv.type) / 8) all.push_back(load_code(type, at));
    return;
  }
  for (; at < scales; ++at) all.push_back(static_cast<float>(*at));
  for (int i = 0; i < width / kv.group * 2 * kPageTokens; ++i)
    all.push_back(load_code(CodeType::f32, scales + i * sizeof(float)));
}

// The keys of one token's head, then its values, as kv_pool.h says they lie.
inline std::vector<float> stored_token(const KvLayout& kv, const std::byte* page, int slot,
                                       int head) {
  const int bits = kv_bits(kv.type);
  std::vector<float> out;
  const auto append = [&](const std::byte* at, int width, bool keys) {
    for (int d = 0; d < width; ++d) {
      if (!is_quantized(kv.type)) {
        const int i = keys ? d * kPageTokens + slot : slot * width + d;
        out.push_back(load_code(bits == 16 ? CodeType::f16 : CodeType::f32, at + i * (bits / 8)));
        continue;
      }
      int i = keys ? d * kPageTokens + slot : slot * width + d, shift = 0;
      if (bits == 4) {
        i = keys ? d / 2 * kPageTokens + slot : slot * width / 2 + d / 32 * 16 + d % 16;
        shift = (keys ? d % 2 : d / 16 % 2) * 4;
      }
      const int code = std::to_integer<int>(at[i]) >> shift & ((1 << bits) - 1);
      const std::byte* scale =
          at + kv.scales_offset(width) + (d / kv.group * 2 * kPageTokens + slot) * sizeof(float);
      const float bias = load_code(CodeType::f32, scale + kPageTokens * sizeof(float));
      out.push_back(load_code(CodeType::f32, scale) * static_cast<float>(code) + bias);
    }
  };
  append(page + kv.k_offset(head), kv.k_dim, true);
  append(page + kv.v_offset(head), kv.v_dim, false);
  return out;
}

enum class Kind { tame, wild };  // wild: some huge, subnormal, infinite or NaN

struct Problem {
  KvLayout kv;
  int len;  // tokens stored
  int window = 0;
  float softcap = 0;
  Kind kind = Kind::tame;
};

inline std::vector<float> random_values(TestRandom& rng, size_t n, Kind kind) {
  auto v = rng.units(n);
  if (kind == Kind::wild)
    for (float& x : v) x = rng.one_in(300) ? rng.odd() : x * 30;
  return v;
}

// A row of `len` random tokens; pages hold NaN behind its end. A state is max, sum and v_dim
// values.
class Row {
 public:
  Row(const Table& t, const Problem& p, uint64_t seed) : table_(t), problem_(p), pool_(p.kv) {
    TestRandom rng(seed);
    const auto heads = static_cast<size_t>(p.kv.num_kv_heads);
    for (int i = 0; i < p.len; ++i) {
      if (i % kPageTokens == 0) add_page();
      const auto k = random_values(rng, heads * p.kv.k_dim, p.kind);
      const auto v = random_values(rng, heads * p.kv.v_dim, p.kind);
      t.store_token(p.kv, pages_.back(), i % kPageTokens, k.data(), v.data());
    }
  }
  int num_tiles() const { return static_cast<int>(pages_.size()); }
  size_t state_size() const { return static_cast<size_t>(problem_.kv.v_dim) + 2; }
  // What a query of `seed` and its position is.
  std::vector<float> query(int position, uint64_t seed) const {
    TestRandom rng(seed * 10007 + position);
    return random_values(rng, problem_.kv.k_dim, problem_.kind);
  }
  // States of queries at `positions`, one after the other, over tiles [begin, end).
  std::vector<float> attend(const std::vector<int>& positions, int begin, int end, int head,
                            uint64_t seed) const {
    const int n = static_cast<int>(positions.size()), v_dim = problem_.kv.v_dim;
    std::vector<std::vector<float>> queries;
    std::vector<const float*> q;
    for (int position : positions) queries.push_back(query(position, seed));
    for (const auto& each : queries) q.push_back(each.data());
    std::vector<float> max(n, 5), sum(n, 5), values(static_cast<size_t>(n) * v_dim, 5), states;
    table_.attend({&problem_.kv, pages_.data(), head, n, q.data(), positions.data(),
                   problem_.window, problem_.softcap, begin, end, max.data(), sum.data(),
                   values.data()});
    for (int i = 0; i < n; ++i) {
      states.insert(states.end(), {max[i], sum[i]});
      states.insert(states.end(), values.begin() + i * v_dim, values.begin() + (i + 1) * v_dim);
    }
    return states;
  }
  std::vector<float> attend(const std::vector<int>& positions, int head, uint64_t seed) const {
    return attend(positions, 0, num_tiles(), head, seed);
  }
  // Folds the state of a later span into `into`.
  void merge(std::vector<float>& into, const std::vector<float>& part) const {
    table_.merge(&into[0], &into[1], &into[2], part[0], part[1], &part[2], problem_.kv.v_dim);
  }
  // Makes NaN of one token's key; float32 pages, one head.
  void spoil(int token) {
    const float nan = NAN;
    std::memcpy(pages_[token / kPageTokens] + token % kPageTokens * sizeof(nan), &nan, sizeof(nan));
  }
  // Gives a token of a row of one head other keys and values.
  void replace(int position, const std::vector<float>& k_and_v) {
    table_.store_token(problem_.kv, pages_[position / kPageTokens], position % kPageTokens,
                       k_and_v.data(), k_and_v.data() + problem_.kv.k_dim);
  }
  // A page that nobody may look into.
  void forget_page(int i) { pages_[i] = nullptr; }
  // Everything stored, bit for bit, as floats: halves, codes and scales of all slots.
  std::vector<float> contents() const {
    const KvLayout& kv = problem_.kv;
    std::vector<float> all;
    for (const std::byte* page : pages_)
      for (int head = 0; head < kv.num_kv_heads; ++head) {
        append_raw(kv, page + kv.k_offset(head), kv.k_dim, all);
        append_raw(kv, page + kv.v_offset(head), kv.v_dim, all);
      }
    return all;
  }
  // The keys of one token's head, then its values, as attention takes them.
  std::vector<float> token(int position, int head) const {
    return stored_token(problem_.kv, pages_[position / kPageTokens], position % kPageTokens, head);
  }

 private:
  void add_page() {
    pages_.push_back(pool_.page(pool_.take()));
    std::memset(pages_.back(), 0xFF, problem_.kv.page_bytes());  // NaN in either type
  }
  const Table& table_;
  Problem problem_;
  KvPool pool_;
  std::vector<std::byte*> pages_;
};

}  // namespace tenon::cpu

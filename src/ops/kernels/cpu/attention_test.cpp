// Attention on every instruction set against the scalar reference, and its laws.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/test_random.h"

namespace tenon::cpu {
namespace {

struct Problem {
  KvLayout kv;
  int len;  // tokens stored
  int window = 0;
  float softcap = 0;
};

// A row of `len` random tokens; pages hold NaN behind its end.
class Row {
 public:
  Row(const Table& t, const Problem& p, uint64_t seed) : problem_(p), pool_(p.kv) {
    TestRandom rng(seed);
    for (int i = 0; i < p.len; ++i) {
      if (i % kPageTokens == 0) add_page();
      const auto k = rng.units(static_cast<size_t>(p.kv.num_kv_heads) * p.kv.k_dim);
      const auto v = rng.units(static_cast<size_t>(p.kv.num_kv_heads) * p.kv.v_dim);
      t.store_token(p.kv, pages_.back(), i % kPageTokens, k.data(), v.data());
    }
  }
  // States of queries at `positions` over tiles [begin, end): max, sum and values of each.
  std::vector<float> attend(const Table& t, const std::vector<int>& positions, int begin, int end,
                            int head, uint64_t seed) const {
    const int n = static_cast<int>(positions.size()), v_dim = problem_.kv.v_dim;
    std::vector<std::vector<float>> queries;
    std::vector<const float*> q;
    for (int position : positions)  // a query is a function of its position
      queries.push_back(TestRandom(seed + position).units(problem_.kv.k_dim));
    for (const auto& query : queries) q.push_back(query.data());
    std::vector<float> state(static_cast<size_t>(n) * (v_dim + 2));
    t.attend({&problem_.kv, pages_.data(), head, n, q.data(), positions.data(), problem_.window,
              problem_.softcap, begin, end, state.data(), state.data() + n, state.data() + 2 * n});
    return state;
  }
  int num_tiles() const { return static_cast<int>(pages_.size()); }

 private:
  void add_page() {
    pages_.push_back(pool_.page(pool_.take()));
    std::memset(pages_.back(), 0xFF, problem_.kv.page_bytes());  // NaN in either type
  }
  Problem problem_;
  KvPool pool_;
  std::vector<std::byte*> pages_;
};

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (KvType type : {KvType::f32, KvType::f16})
    for (int dim : {64, 72, 80, 96, 128, 192, 256, 512, 1})
      all.push_back({{2, dim, dim == 192 ? 128 : dim, type}, 150});
  all.push_back({{3, 64, 64, KvType::f16}, 700});
  all.push_back({{1, 64, 64, KvType::f16}, 300, 100});
  all.push_back({{1, 64, 64, KvType::f16}, 300, 1});
  all.push_back({{1, 64, 64, KvType::f32}, 200, 0, 5.0f});
  all.push_back({{1, 96, 96, KvType::f16}, 200, 64, 0.5f});
  return all;
}

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(bits_as<uint32_t>(got[i]), bits_as<uint32_t>(want[i])) << what << " at " << i;
}

TEST(Attention, EveryTargetGivesTheReferencesBits) {
  const Table& reference = *all_tables().front();
  uint64_t seed = 1;
  for (const Problem& p : problems()) {
    const Row want(reference, p, ++seed);
    TestRandom rng(seed);
    for (int n : {1, 2, 3, 4, 5, 9}) {
      std::vector<int> positions;
      for (int i = 0; i < n; ++i) positions.push_back(rng.below(p.len));
      const int head = rng.below(p.kv.num_kv_heads);
      const auto state = want.attend(reference, positions, 0, want.num_tiles(), head, seed);
      for (float value : state) ASSERT_FALSE(std::isnan(value)) << "garbage leaked";
      for (const Table* t : all_tables()) {
        if (std::strcmp(t->name, "sse4") == 0) continue;
        const Row row(*t, p, seed);
        expect_same(row.attend(*t, positions, 0, row.num_tiles(), head, seed), state, t->name);
      }
    }
  }
}

TEST(Attention, AQueryDoesNotSeeItsNeighbours) {
  uint64_t seed = 50;
  for (const Problem& p : problems())
    for (const Table* t : all_tables()) {
      const Row row(*t, p, ++seed);
      const std::vector<int> positions{p.len - 1, 0, p.len / 2, 5 % p.len, p.len - 2, 63 % p.len};
      const auto together = row.attend(*t, positions, 0, row.num_tiles(), 0, seed);
      const int n = static_cast<int>(positions.size()), v_dim = p.kv.v_dim;
      for (int i = 0; i < n; ++i) {
        const auto alone = row.attend(*t, {positions[i]}, 0, row.num_tiles(), 0, seed);
        std::vector<float> mine{together[i], together[n + i]};
        const auto values = together.begin() + 2 * n + i * v_dim;
        mine.insert(mine.end(), values, values + v_dim);
        expect_same(alone, mine, t->name);
      }
    }
}

// Against softmax in float64 over the stored values.
TEST(Attention, IsNearTheFormula) {
  const Table& t = *all_tables().front();
  for (const Problem& p : problems()) {
    if (p.kv.type != KvType::f32) continue;
    const int position = p.len - 3, dim = p.kv.k_dim, v_dim = p.kv.v_dim;
    const Row row(t, p, 9);
    const auto state = row.attend(t, {position}, 0, row.num_tiles(), 0, 77);
    const auto q = TestRandom(77 + position).units(dim);
    TestRandom rng(9);
    std::vector<double> out(v_dim);
    double sum = 0;
    for (int i = 0; i < p.len; ++i) {
      const auto k = rng.units(static_cast<size_t>(p.kv.num_kv_heads) * dim);
      const auto v = rng.units(static_cast<size_t>(p.kv.num_kv_heads) * v_dim);
      if (i > position || (p.window > 0 && i <= position - p.window)) continue;
      double score = 0;
      for (int d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * k[d];
      if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
      sum += std::exp(score);
      for (int d = 0; d < v_dim; ++d) out[d] += std::exp(score) * v[d];
    }
    for (int d = 0; d < v_dim; ++d)
      EXPECT_NEAR(state[2 + d] / state[1], out[d] / sum, 2e-5) << dim << " wide, " << d;
  }
}

// Where no key is seen the state stays empty, and merging it changes nothing.
TEST(Attention, EmptySpans) {
  for (const Table* t : all_tables()) {
    const Problem p{{1, 64, 64, KvType::f16}, 200};
    const Row row(*t, p, 3);
    const auto state = row.attend(*t, {10}, 1, 3, 0, 3);
    EXPECT_EQ(state[0], -HUGE_VALF);
    EXPECT_EQ(state[1], 0);
    auto into = row.attend(*t, {10}, 0, 1, 0, 3);
    const auto before = into;
    t->merge(&into[0], &into[1], &into[2], state[0], state[1], &state[2], 64);
    expect_same(into, before, t->name);
  }
}

}  // namespace
}  // namespace tenon::cpu

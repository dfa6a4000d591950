// Attention on every instruction set against the scalar reference, bit for bit, and its laws.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {
namespace {

enum class Values { tame, wild };  // wild: some huge, subnormal, infinite or NaN

struct Problem {
  KvLayout kv;
  int len;  // tokens stored
  int window = 0;
  float softcap = 0;
  Values values = Values::tame;
};

std::vector<float> random_values(TestRandom& rng, size_t n, Values values) {
  auto v = rng.units(n);
  if (values == Values::wild)
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
      const auto k = random_values(rng, heads * p.kv.k_dim, p.values);
      const auto v = random_values(rng, heads * p.kv.v_dim, p.values);
      t.store_token(p.kv, pages_.back(), i % kPageTokens, k.data(), v.data());
    }
  }
  int num_tiles() const { return static_cast<int>(pages_.size()); }
  size_t state_size() const { return static_cast<size_t>(problem_.kv.v_dim) + 2; }
  // What a query of `seed` and its position is.
  std::vector<float> query(int position, uint64_t seed) const {
    TestRandom rng(seed * 10007 + position);
    return random_values(rng, problem_.kv.k_dim, problem_.values);
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
  // A page that nobody may look into.
  void forget_page(int i) { pages_[i] = nullptr; }
  // Everything stored, keys and values of all tokens.
  std::vector<float> contents() const {
    const KvLayout& kv = problem_.kv;
    const size_t size = kv_type_bytes(kv.type);
    std::vector<float> all;
    for (const std::byte* page : pages_)
      for (size_t at = 0; at < kv.page_bytes(); at += size)
        all.push_back(load_code(kv.type == KvType::f16 ? CodeType::f16 : CodeType::f32, page + at));
    return all;
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

Problem random_problem(TestRandom& rng) {
  const int k_dim = 1 + rng.below(140), v_dim = rng.one_in(2) ? k_dim : 1 + rng.below(140);
  Problem p{{1 + rng.below(3), k_dim, v_dim, rng.one_in(2) ? KvType::f32 : KvType::f16},
            1 + rng.below(260)};
  if (rng.one_in(3)) p.window = 1 + rng.below(200);
  if (rng.one_in(3)) p.softcap = std::ldexp(1.0f, rng.below(8) - 2);
  if (rng.one_in(2)) p.values = Values::wild;
  return p;
}

std::vector<int> random_positions(TestRandom& rng, int n, int len) {
  std::vector<int> positions;
  for (int i = 0; i < n; ++i) positions.push_back(rng.below(len));
  return positions;
}

TEST(Attention, EveryTargetGivesTheReferencesBits) {
  uint64_t seed = 1;
  for (const Problem& p : problems()) {
    const Row want(reference_table(), p, ++seed);
    TestRandom rng(seed);
    for (int n : {1, 2, 3, 4, 5, 9}) {
      const auto positions = random_positions(rng, n, p.len);
      const int head = rng.below(p.kv.num_kv_heads);
      const auto states = want.attend(positions, head, seed);
      for (float value : states) ASSERT_FALSE(std::isnan(value)) << "garbage leaked";
      for (const Table* t : fused_tables())
        expect_same(Row(*t, p, seed).attend(positions, head, seed), states, t->name);
    }
  }
}

TEST(Attention, WildValuesInAnyShape) {
  for (uint64_t seed = 1; seed <= 250; ++seed) {
    TestRandom rng(seed);
    const Problem p = random_problem(rng);
    const Row want(reference_table(), p, seed);
    const auto positions = random_positions(rng, 1 + rng.below(9), p.len);
    const int begin = rng.below(want.num_tiles());
    const int end = begin + rng.below(want.num_tiles() - begin + 1);
    const int head = rng.below(p.kv.num_kv_heads);
    const auto states = want.attend(positions, begin, end, head, seed);
    for (const Table* t : fused_tables()) {
      const Row row(*t, p, seed);
      expect_same(row.contents(), want.contents(), t->name);
      expect_same(row.attend(positions, begin, end, head, seed), states,
                  fmt::format("{}, seed {}", t->name, seed));
    }
  }
}

TEST(Attention, AQueryDoesNotSeeItsNeighbours) {
  uint64_t seed = 50;
  for (Problem p : problems())
    for (Values values : {Values::tame, Values::wild})
      for (const Table* t : all_tables()) {
        p.values = values;
        const Row row(*t, p, ++seed);
        const std::vector<int> positions{p.len - 1, 0, p.len / 2, 5 % p.len, p.len - 2, 63 % p.len};
        const auto together = row.attend(positions, 0, seed);
        for (size_t i = 0; i < positions.size(); ++i) {
          const auto mine = together.begin() + i * row.state_size();
          expect_same(row.attend({positions[i]}, 0, seed), {mine, mine + row.state_size()},
                      t->name);
        }
      }
}

// Pages before the window and behind the query may be gone.
TEST(Attention, OnlySeenPagesAreRead) {
  const Problem p{{1, 64, 64, KvType::f16}, 640, 70};
  for (const Table* t : all_tables())
    for (int position : {0, 63, 64, 300, 639}) {
      Row row(*t, p, 12);
      const auto want = row.attend({position}, 0, 12);
      for (int i = 0; i < row.num_tiles(); ++i)
        if (i > position / kPageTokens || (i + 1) * kPageTokens <= position - p.window + 1)
          row.forget_page(i);
      expect_same(row.attend({position}, 0, 12), want, t->name);
    }
}

// Spans of one tile, merged in order, are the whole.
TEST(Attention, TilesMergeToTheWhole) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    TestRandom rng(seed);
    const Problem p = random_problem(rng);
    const auto positions = random_positions(rng, 1, p.len);
    for (const Table* t : all_tables()) {
      const Row row(*t, p, seed);
      auto state = row.attend(positions, 0, 1, 0, seed);
      for (int i = 1; i < row.num_tiles(); ++i)
        row.merge(state, row.attend(positions, i, i + 1, 0, seed));
      expect_same(state, row.attend(positions, 0, seed), t->name);
    }
  }
}

// Against softmax in float64 over the stored values.
TEST(Attention, EveryTargetIsNearTheFormula) {
  for (const Problem& p : problems())
    for (const Table* t : all_tables()) {
      const int position = p.len - 3, dim = p.kv.k_dim, v_dim = p.kv.v_dim;
      const Row row(*t, p, 9);
      const auto state = row.attend({position}, 0, 77), q = row.query(position, 77);
      std::vector<float> got(v_dim);
      t->finish(state[1], &state[2], v_dim, got.data());
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
      const double tolerance = p.kv.type == KvType::f16 ? 2e-3 : 2e-5;
      for (int d = 0; d < v_dim; ++d)
        EXPECT_NEAR(got[d], out[d] / sum, tolerance) << t->name << ": " << dim << " wide, " << d;
    }
}

// Where no key is seen the state stays empty, and merging it changes nothing.
TEST(Attention, EmptySpans) {
  for (const Table* t : all_tables()) {
    const Problem p{{1, 64, 64, KvType::f16}, 200};
    const Row row(*t, p, 3);
    const auto empty = row.attend({10}, 1, 3, 0, 3);
    EXPECT_EQ(empty[0], -HUGE_VALF);
    for (size_t i = 1; i < empty.size(); ++i) EXPECT_EQ(empty[i], 0);
    const auto state = row.attend({10}, 0, 1, 0, 3);
    auto into = state;
    row.merge(into, empty);
    expect_same(into, state, t->name);
    into = empty;
    row.merge(into, state);
    expect_same(into, state, t->name);
  }
}

// Scores that differ in the sign of zero alone: which is the maximum must not depend on lanes.
TEST(Attention, SignedZeroScores) {
  const KvLayout kv{1, 1, 1, KvType::f32};
  std::vector<std::byte> page(kv.page_bytes());
  std::byte* pages[] = {page.data()};
  const float q = 1e-30f, *queries[] = {&q};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    TestRandom rng(seed);
    for (int i = 0; i < kPageTokens; ++i) {
      const float kKeys[] = {-1.0f, -1e-30f, 0.0f, 1e-30f}, k = kKeys[rng.below(4)], v = rng.unit();
      reference_table().store_token(kv, page.data(), i, &k, &v);
    }
    const int position = rng.below(kPageTokens);
    const auto run = [&](const Table& t) {
      std::vector<float> s(3);
      t.attend({&kv, pages, 0, 1, queries, &position, 0, 0, 0, 1, &s[0], &s[1], &s[2]});
      return s;
    };
    for (const Table* t : all_tables()) {
      if (std::strcmp(t->name, "sse4") == 0) continue;
      expect_same(run(*t), run(reference_table()), t->name);
    }
  }
}

// A NaN that a query sees reaches its output, through any later tile.
TEST(Attention, NanIsNotHidden) {
  const KvLayout kv{1, 16, 16, KvType::f32};
  for (const Table* t : all_tables()) {
    Row row(*t, {kv, 200}, 4);
    const auto before = row.attend({9, 10, 150}, 0, 4);
    row.spoil(10);
    const auto after = row.attend({9, 10, 150}, 0, 4);
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(std::isnan(after[i]), i >= row.state_size() && i % row.state_size() != 0)
          << t->name << ": " << i;
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Attention, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({});
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      TestRandom rng(seed);
      const Problem p = random_problem(rng);
      const Row row(*t, p, seed);
      hash = fingerprint(row.contents(), hash);
      hash = fingerprint(row.attend(random_positions(rng, 5, p.len), 0, seed), hash);
    }
    EXPECT_EQ(hash, 5917409602507665999u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

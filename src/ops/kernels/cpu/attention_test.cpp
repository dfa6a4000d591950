// Attention on every instruction set against the scalar reference, bit for bit, and its laws.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernels/cpu/test_kv.h"

namespace tenon::cpu {
namespace {

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
  for (KvType type : {KvType::q8, KvType::q4}) {
    for (int dim : {32, 64, 96, 160}) all.push_back({{2, dim, dim, type, 32}, 150});
    for (int dim : {64, 192, 256}) all.push_back({{1, dim, dim == 192 ? 128 : dim, type, 64}, 150});
    for (int dim : {128, 1024}) all.push_back({{1, dim, dim, type, 128}, 150});
    all.push_back({{2, 64, 64, type, 64}, 700});
    all.push_back({{1, 64, 64, type, 32}, 300, 100, 5.0f});
  }
  return all;
}

Problem random_problem(TestRandom& rng) {
  const int k_dim = 1 + rng.below(140), v_dim = rng.one_in(2) ? k_dim : 1 + rng.below(140);
  Problem p{{1 + rng.below(3), k_dim, v_dim, rng.one_in(2) ? KvType::f32 : KvType::f16},
            1 + rng.below(260)};
  if (rng.one_in(3)) p.window = 1 + rng.below(200);
  if (rng.one_in(3)) p.softcap = std::ldexp(1.0f, rng.below(8) - 2);
  if (rng.one_in(2)) p.kind = Kind::wild;
  return p;
}

// The same with quantized keys and values.
Problem random_quantized_problem(TestRandom& rng) {
  Problem p = random_problem(rng);
  p.kv.type = rng.one_in(2) ? KvType::q8 : KvType::q4;
  p.kv.group = 32 << rng.below(3);
  p.kv.k_dim = p.kv.group * (1 + rng.below(3));
  p.kv.v_dim = p.kv.group * (1 + rng.below(3));
  return p;
}
Problem any_problem(TestRandom& rng) {
  return rng.one_in(2) ? random_problem(rng) : random_quantized_problem(rng);
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
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    TestRandom rng(seed);
    const Problem p = any_problem(rng);
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
    for (Kind kind : {Kind::tame, Kind::wild})
      for (const Table* t : all_tables()) {
        p.kind = kind;
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
    const Problem p = any_problem(rng);
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
      std::vector<double> out(v_dim);
      double sum = 0;
      for (int i = 0; i < p.len; ++i) {
        const auto token = row.token(i, 0);  // its key, then its value
        if (i > position || (p.window > 0 && i <= position - p.window)) continue;
        double score = 0;
        for (int d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * token[d];
        if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
        sum += std::exp(score);
        for (int d = 0; d < v_dim; ++d) out[d] += std::exp(score) * token[dim + d];
      }
      for (int d = 0; d < v_dim; ++d)
        EXPECT_NEAR(got[d], out[d] / sum, 2e-5) << t->name << ": " << dim << " wide, " << d;
    }
}

// Attending to codes is attending to what they stand for, bit for bit.
TEST(Attention, CodesAreTheirValues) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TestRandom rng(seed);
    Problem p = random_quantized_problem(rng);
    p.kv.num_kv_heads = 1;
    const auto positions = random_positions(rng, 1 + rng.below(6), p.len);
    for (const Table* t : all_tables()) {
      const Row row(*t, p, seed);
      Problem plain = p;
      plain.kv.type = KvType::f32;
      Row values(*t, plain, seed);
      for (int i = 0; i < p.len; ++i) values.replace(i, row.token(i, 0));
      expect_same(row.attend(positions, 0, seed), values.attend(positions, 0, seed), t->name);
    }
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

TEST(Attention, FingerprintOfCodes) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({});
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      TestRandom rng(seed);
      const Problem p = random_quantized_problem(rng);
      const Row row(*t, p, seed);
      hash = fingerprint(row.contents(), hash);
      hash = fingerprint(row.attend(random_positions(rng, 5, p.len), 0, seed), hash);
    }
    EXPECT_EQ(hash, 12410372611672487063u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

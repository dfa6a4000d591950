// Softmax, argmax and the choice of experts: every instruction set against the scalar reference,
// and the reference against what the words mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {
namespace {

std::vector<float> softmax(const Table& t, std::vector<float> x) {
  t.softmax(x.data(), static_cast<int>(x.size()), x.data());
  return x;
}
int32_t argmax(const Table& t, const std::vector<float>& x) {
  return t.argmax(x.data(), static_cast<int>(x.size()));
}
std::vector<int> top_k(const std::vector<float>& x, int k) {
  std::vector<int> ids(k, -1);
  cpu::top_k(x.data(), static_cast<int>(x.size()), k, ids.data());
  return ids;
}

TEST(Scores, SoftmaxGivesTheReferencesBits) {
  for (int n : {1, 2, 7, 8, 15, 16, 17, 33, 64, 127, 128, 1000, 5000})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      TestRandom rng(seed * 10000 + n);
      auto x = rng.values(n, seed % 4 == 0);
      if (seed % 4 == 1)
        for (float& v : x) v = v < 0 ? -HUGE_VALF : v;
      const auto want = softmax(reference_table(), x);
      for (const Table* t : fused_tables()) {
        expect_same(softmax(*t, x), want, t->name);
        std::vector<float> apart(n);
        t->softmax(x.data(), n, apart.data());
        expect_same(apart, want, t->name);
      }
    }
}

TEST(Scores, SoftmaxIsNearTheFormula) {
  TestRandom rng(4);
  auto x = rng.units(777);
  for (float& v : x) v = v * 10 + 300;  // exp of that alone would overflow
  double sum = 0;
  for (float v : x) sum += std::exp(double{v} - 300);
  for (const Table* t : all_tables()) {
    const auto y = softmax(*t, x);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], std::exp(double{x[i]} - 300) / sum, 1e-7) << t->name;
    EXPECT_NEAR(std::accumulate(y.begin(), y.end(), 0.0), 1, 1e-6);
    EXPECT_EQ(softmax(*t, {5})[0], 1);
  }
}

TEST(Scores, SoftmaxOfNothingIsNan) {
  for (const Table* t : all_tables())
    for (int n : {1, 5, 16, 100})
      for (float bad : {NAN, -HUGE_VALF, HUGE_VALF}) {
        std::vector<float> x(n, bad == -HUGE_VALF ? bad : 1.0f);
        x[n / 2] = bad;
        for (float y : softmax(*t, x)) EXPECT_TRUE(std::isnan(y)) << t->name << " " << bad;
      }
}

std::vector<float> exps(const Table& t, std::vector<float> x, float shift, float divisor) {
  t.exps(x.data(), shift, divisor, static_cast<int>(x.size()), x.data());
  return x;
}

TEST(Scores, ExpsGiveTheReferencesBits) {
  for (int n : {1, 7, 8, 16, 33, 1000})
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      TestRandom rng(seed * 100 + n);
      const auto x = rng.values(n, seed % 4 == 0);
      const float divisor = 0.01f + 5 * rng.units(1)[0] * rng.units(1)[0];
      const auto want = exps(reference_table(), x, 1.5f, divisor);
      for (const Table* t : fused_tables()) expect_same(exps(*t, x, 1.5f, divisor), want, t->name);
    }
  for (const Table* t : all_tables()) {
    const auto y = exps(*t, {3, 1, -HUGE_VALF}, 3, 0.5f);
    EXPECT_EQ(y[0], 1) << t->name;
    EXPECT_NEAR(y[1], std::exp(-4.0), 1e-8) << t->name;
    EXPECT_EQ(y[2], 0) << t->name;
  }
}

// Few different values, so that ties are everywhere; the largest at every place.
TEST(Scores, ArgmaxIsTheLowestOfTheLargest) {
  for (int n : {1, 2, 7, 8, 9, 16, 63, 64, 65, 130, 500})
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      TestRandom rng(seed * 1000 + n);
      std::vector<float> x(n);
      const float kValues[] = {-HUGE_VALF, -3.4e38f, -1.0f, -0.0f, 0.0f, 1e-42f, 1.0f, HUGE_VALF};
      const int kinds = 1 + rng.below(8);
      for (float& v : x) v = kValues[rng.below(kinds)];
      if (rng.one_in(8)) x[rng.below(n)] = rng.one_in(2) ? NAN : -NAN;
      const bool nan = std::any_of(x.begin(), x.end(), [](float v) { return std::isnan(v); });
      const auto largest = std::max_element(x.begin(), x.end());
      const int want = nan || *largest == -HUGE_VALF ? -1 : static_cast<int>(largest - x.begin());
      for (const Table* t : all_tables()) ASSERT_EQ(argmax(*t, x), want) << t->name << ", " << n;
    }
}

TEST(Scores, ArgmaxSeesEveryPlace) {
  for (const Table* t : all_tables())
    for (int i = 0; i < 200; ++i) {
      std::vector<float> x(200, -5);
      x[i] = -4;
      ASSERT_EQ(argmax(*t, x), i) << t->name;
      x[i] = NAN;
      ASSERT_EQ(argmax(*t, x), -1) << t->name;
    }
}

TEST(Scores, TopK) {
  EXPECT_EQ(top_k({1, 5, 3, 5, 2}, 3), (std::vector<int>{1, 3, 2}));
  EXPECT_EQ(top_k({0.0f, -0.0f, 0.0f}, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(top_k({-0.0f, 0.0f, -1}, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(top_k({NAN, -HUGE_VALF, NAN, 1}, 4), (std::vector<int>{3, 1, 0, 2}));
  EXPECT_EQ(top_k({1, 2}, 0), std::vector<int>{});
}

TEST(Scores, TopKIsAStableSort) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    TestRandom rng(seed);
    const int n = 1 + rng.below(130), k = 1 + rng.below(n);
    std::vector<float> x(n);
    for (float& v : x) v = rng.one_in(2) ? rng.odd() : static_cast<float>(rng.below(9));
    std::vector<int> want(n);
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(), [&](int a, int b) {
      return std::isnan(x[b]) ? !std::isnan(x[a]) : x[a] > x[b];
    });
    want.resize(k);
    ASSERT_EQ(top_k(x, k), want) << seed;
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Scores, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({});
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      TestRandom rng(seed);
      const auto x = rng.values(1 + rng.below(300), seed % 8 == 0);
      hash = fingerprint(softmax(*t, x), hash);
      hash = fingerprint({static_cast<float>(argmax(*t, x))}, hash);
    }
    EXPECT_EQ(hash, 5028036660742162079u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

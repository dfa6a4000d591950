// The gated delta rule, its gates and the short convolution: every instruction set against the
// scalar reference, and the reference against float64.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {
namespace {

// Outputs of `tokens` tokens of one head, then the state they leave.
std::vector<float> run_delta(const Table& t, int k_dim, int v_dim, int tokens, uint64_t seed) {
  TestRandom rng(seed);
  std::vector<float> state(static_cast<size_t>(k_dim) * v_dim), all, y(v_dim);
  for (int i = 0; i < tokens; ++i) {
    const auto q = rng.units(k_dim), k = rng.units(k_dim), v = rng.units(v_dim);
    const float decay = 0.5f + 0.5f * std::abs(rng.unit()), beta = std::abs(rng.unit()) / 8;
    t.delta({k_dim, v_dim, state.data(), q.data(), k.data(), v.data(), decay, beta, y.data()});
    all.insert(all.end(), y.begin(), y.end());
  }
  all.insert(all.end(), state.begin(), state.end());
  return all;
}

// The rule as it is written, in float64.
std::vector<double> exact_delta(int k_dim, int v_dim, int tokens, uint64_t seed) {
  TestRandom rng(seed);
  std::vector<double> state(static_cast<size_t>(k_dim) * v_dim), all;
  for (int i = 0; i < tokens; ++i) {
    const auto q = rng.units(k_dim), k = rng.units(k_dim), v = rng.units(v_dim);
    const double decay = 0.5f + 0.5f * std::abs(rng.unit()), beta = std::abs(rng.unit()) / 8;
    for (double& s : state) s *= decay;
    for (int j = 0; j < v_dim; ++j) {
      double seen = 0, y = 0;
      for (int d = 0; d < k_dim; ++d) seen += state[d * v_dim + j] * k[d];
      for (int d = 0; d < k_dim; ++d) {
        state[d * v_dim + j] += (v[j] - seen) * beta * k[d];
        y += state[d * v_dim + j] * q[d];
      }
      all.push_back(y);
    }
  }
  all.insert(all.end(), state.begin(), state.end());
  return all;
}

TEST(Recurrent, DeltaGivesTheReferencesBits) {
  uint64_t seed = 1;
  for (int k_dim : {1, 32, 96, 128})
    for (int v_dim : {1, 7, 16, 72, 128, 200}) {
      const auto want = run_delta(reference_table(), k_dim, v_dim, 6, ++seed);
      for (const Table* t : fused_tables())
        expect_same(run_delta(*t, k_dim, v_dim, 6, seed), want, t->name);
    }
}

TEST(Recurrent, DeltaIsNearTheFormula) {
  const auto got = run_delta(reference_table(), 64, 48, 200, 5);
  const auto want = exact_delta(64, 48, 200, 5);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-4) << i;
}

// Decays, then betas, of n heads.
std::vector<float> run_gates(const Table& t, int n, bool wild, uint64_t seed) {
  TestRandom rng(seed);
  const auto a = rng.values(n, wild), b = rng.values(n, wild), bias = rng.values(n, wild);
  auto a_log = rng.values(n, wild);
  if (!wild)
    for (float& v : a_log) v /= 5;
  std::vector<float> both(2 * n);
  t.delta_gates(a.data(), b.data(), a_log.data(), bias.data(), n, both.data(), &both[n]);
  return both;
}

TEST(Recurrent, GatesGiveTheReferencesBits) {
  for (int n : {1, 2, 7, 8, 15, 16, 17, 32, 48, 100})
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      const auto want = run_gates(reference_table(), n, seed % 2 == 0, seed);
      for (const Table* t : fused_tables())
        expect_same(run_gates(*t, n, seed % 2 == 0, seed), want, t->name);
    }
}

TEST(Recurrent, GatesAreNearTheFormulas) {
  const int n = 500;
  TestRandom rng(9);
  const auto a = rng.values(n, false), b = rng.values(n, false), bias = rng.units(n);
  const auto a_log = rng.units(n);
  for (const Table* t : all_tables()) {
    std::vector<float> decay(n), beta(n);
    t->delta_gates(a.data(), b.data(), a_log.data(), bias.data(), n, decay.data(), beta.data());
    for (int i = 0; i < n; ++i) {
      const double softplus = std::log1p(std::exp(double{a[i]} + bias[i]));
      EXPECT_NEAR(decay[i], std::exp(-std::exp(double{a_log[i]}) * softplus), 1e-6) << t->name;
      EXPECT_NEAR(beta[i], 1 / (1 + std::exp(-double{b[i]})), 1e-6) << t->name;
    }
  }
}

TEST(Recurrent, Conv) {
  for (int taps : {1, 3, 4})
    for (int n : {1, 5, 16, 33, 640}) {
      TestRandom rng(n * 10 + taps);
      const auto u = rng.units(static_cast<size_t>(taps) * n);
      const auto w = rng.units(static_cast<size_t>(taps) * n);
      std::vector<const float*> rows;
      for (int i = 0; i < taps; ++i) rows.push_back(&u[i * n]);
      std::vector<float> want(n), got(n);
      reference_table().conv(rows.data(), w.data(), taps, n, want.data());
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        for (int i = 0; i < taps; ++i) sum += static_cast<double>(u[i * n + j]) * w[i * n + j];
        ASSERT_NEAR(want[j], sum / (1 + std::exp(-sum)), 1e-6);
      }
      for (const Table* t : fused_tables()) {
        t->conv(rows.data(), w.data(), taps, n, got.data());
        expect_same(got, want, t->name);
      }
    }
}

TEST(Recurrent, AddScaled) {
  for (int n : {1, 15, 16, 100}) {
    TestRandom rng(n);
    const auto x = rng.units(n), before = rng.units(n);
    auto want = before;
    reference_table().add_scaled(0.3f, x.data(), n, want.data());
    for (const Table* t : fused_tables()) {
      auto got = before;
      t->add_scaled(0.3f, x.data(), n, got.data());
      expect_same(got, want, t->name);
    }
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Recurrent, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({});
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      TestRandom rng(seed);
      hash = fingerprint(run_gates(*t, 1 + rng.below(60), seed % 2 == 0, seed), hash);
      const int k_dim = 1 + rng.below(40), v_dim = 1 + rng.below(40);
      hash = fingerprint(run_delta(*t, k_dim, v_dim, 3, seed), hash);
    }
    EXPECT_EQ(hash, 3455120580860778071u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

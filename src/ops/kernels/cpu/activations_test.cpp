// Activations and gates on every instruction set against the scalar reference, bit for bit, and the
// reference against its formulas.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {
namespace {

constexpr Activation kAll[] = {Activation::silu, Activation::gelu, Activation::gelu_tanh};

double exact(Activation act, double x) {
  switch (act) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

// Every function on one row, one output after the other.
std::vector<float> run_all(const Table& t, const std::vector<float>& x,
                           const std::vector<float>& w) {
  const int n = static_cast<int>(x.size());
  std::vector<float> all, y(n);
  const auto keep = [&] { all.insert(all.end(), y.begin(), y.end()); };
  for (Activation act : kAll) {
    t.gated(act, x.data(), w.data(), n, y.data()), keep();
    t.activate(act, x.data(), n, y.data()), keep();
  }
  t.sigmoid_gate(x.data(), w.data(), n, y.data()), keep();
  t.softcap(std::abs(w[0]), x.data(), n, y.data()), keep();
  return all;
}

TEST(Activations, EveryTargetGivesTheReferencesBits) {
  for (int n : {1, 2, 7, 15, 16, 17, 33, 64, 100, 576, 1000})
    for (bool wild : {false, true})
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        TestRandom rng(seed * 1000 + n);
        const auto x = rng.values(n, wild), w = rng.values(n, wild);
        const auto want = run_all(reference_table(), x, w);
        for (const Table* t : fused_tables()) expect_same(run_all(*t, x, w), want, t->name);
      }
}

// Through exp, tanh and erf of every 2^13th float there is, and of all about their limits.
TEST(Activations, OfAllMagnitudes) {
  std::vector<float> x;
  for (uint32_t high = 0; high < 1u << 19; ++high)
    x.push_back(bits_as<float>(high << 13 | (high & 0x1FFF)));
  for (float limit : {88.72283f, 87.0f, -88.72283f, -87.0f, 0.625f, -0.625f, 0.78f, 1.0f,
                      1.41421356f, -1.41421356f, 5.65685425f, -5.65685425f})
    for (int i = -1000; i <= 1000; ++i)
      x.push_back(bits_as<float>(bits_as<uint32_t>(limit) + static_cast<uint32_t>(i)));
  x.push_back(1);  // softcap's cap
  std::reverse(x.begin(), x.end());
  const auto want = run_all(reference_table(), x, x);
  for (const Table* t : fused_tables()) expect_same(run_all(*t, x, x), want, t->name);
}

TEST(Activations, EveryTargetIsNearTheFormulas) {
  TestRandom rng(11);
  const int n = 1002;
  auto x = rng.units(n);
  const auto w = rng.units(n);
  for (float& v : x) v *= 30;
  for (const Table* t : all_tables()) {
    std::vector<float> y(n);
    for (Activation act : kAll) {
      t->gated(act, x.data(), w.data(), n, y.data());
      for (int i = 0; i < n; ++i) EXPECT_NEAR(y[i], exact(act, x[i]) * w[i], 4e-6) << t->name;
      t->activate(act, x.data(), n, y.data());
      for (int i = 0; i < n; ++i) EXPECT_NEAR(y[i], exact(act, x[i]), 4e-6) << t->name;
    }
    t->sigmoid_gate(x.data(), w.data(), n, y.data());
    for (int i = 0; i < n; ++i)
      EXPECT_NEAR(y[i], w[i] / (1 + std::exp(-double{x[i]})), 1e-6) << t->name;
    t->softcap(7, x.data(), n, y.data());
    for (int i = 0; i < n; ++i) EXPECT_NEAR(y[i], 7 * std::tanh(x[i] / 7.0), 2e-6) << t->name;
  }
}

TEST(Activations, OutputsMayBeInputs) {
  TestRandom rng(8);
  constexpr int n = 77;
  const auto x = rng.units(n), w = rng.units(n);
  std::vector<float> y(n);
  for (const Table* t : all_tables()) {
    for (Activation act : kAll) {
      auto in_place = x;
      t->activate(act, x.data(), n, y.data());
      t->activate(act, in_place.data(), n, in_place.data());
      expect_same(in_place, y, t->name);
      t->gated(act, x.data(), w.data(), n, y.data());
      in_place = w;
      t->gated(act, x.data(), in_place.data(), n, in_place.data());
      expect_same(in_place, y, t->name);
    }
    t->sigmoid_gate(x.data(), w.data(), n, y.data());
    for (bool gate : {true, false}) {
      auto in_place = gate ? x : w;
      t->sigmoid_gate(gate ? in_place.data() : x.data(), gate ? w.data() : in_place.data(), n,
                      in_place.data());
      expect_same(in_place, y, t->name);
    }
    auto in_place = x;
    t->softcap(2, x.data(), n, y.data());
    t->softcap(2, in_place.data(), n, in_place.data());
    expect_same(in_place, y, t->name);
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Activations, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({});
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      TestRandom rng(seed);
      const int n = 1 + rng.below(200);
      const auto x = rng.values(n, seed % 2 == 0), w = rng.values(n, false);
      hash = fingerprint(run_all(*t, x, w), hash);
    }
    EXPECT_EQ(hash, 634293893991654997u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

// Operations on single rows on every instruction set against the scalar reference, bit for bit, and
// the reference against its formulas.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {
namespace {

struct Quantized {
  std::vector<int16_t> codes;
  std::vector<float> scale, sum;
  std::vector<int32_t> code_sum;
};

Quantized quantize(const Table& t, const std::vector<float>& x, int group) {
  const size_t groups = x.size() / group;
  Quantized q{std::vector<int16_t>(x.size()), std::vector<float>(groups),
              std::vector<float>(groups), std::vector<int32_t>(groups)};
  t.quantize(x.data(), static_cast<int>(x.size()), group,
             {q.codes.data(), q.scale.data(), q.sum.data(), q.code_sum.data()});
  return q;
}

// Codes are integers from one rounded product, so that even targets without fused multiply-add
// give the same.
void expect_same_codes(const std::vector<float>& x, int group) {
  const Quantized want = quantize(reference_table(), x, group);
  for (const Table* t : all_tables()) {
    const Quantized got = quantize(*t, x, group);
    ASSERT_EQ(got.codes, want.codes) << t->name;
    ASSERT_EQ(got.code_sum, want.code_sum) << t->name;
    expect_same(got.scale, want.scale, t->name);
    expect_same(got.sum, want.sum, t->name);
  }
}

TEST(Rows, QuantizeGivesTheReferencesCodes) {
  for (int group : {16, 32, 64, 128})
    for (uint64_t seed = 1; seed <= 300; ++seed) {
      TestRandom rng(seed);
      auto x = rng.units(static_cast<size_t>(group) * (1 + rng.below(4)));
      const float size = std::ldexp(1.0f, rng.below(260) - 140);  // from nothing to infinity
      for (float& v : x) v = rng.one_in(200) ? rng.odd() : v * size;
      expect_same_codes(x, group);
    }
}

// Halves between codes round to even, and the edge of what counts as nothing is where it is said.
TEST(Rows, QuantizeTiesAndEdges) {
  std::vector<float> x(16);
  for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(i) + 0.5f;
  x[0] = 32767;
  expect_same_codes(x, 16);
  const Quantized q = quantize(reference_table(), x, 16);
  for (int i = 1; i < 16; ++i) EXPECT_EQ(q.codes[i], (i + 1) / 2 * 2);
  for (float edge : {0x1p-100f, std::nextafter(0x1p-100f, 0.0f)}) {
    const std::vector<float> tiny(16, -edge);
    expect_same_codes(tiny, 16);
    const bool counts = edge == 0x1p-100f;
    EXPECT_EQ(quantize(reference_table(), tiny, 16).codes[3], counts ? -32767 : 0);
  }
  expect_same_codes(std::vector<float>(16, 3.4028235e38f), 16);
}

TEST(Rows, QuantizeIsNear) {
  TestRandom rng(5);
  const auto x = rng.units(4096);
  const Quantized q = quantize(reference_table(), x, 64);
  for (int g = 0; g < 64; ++g) {
    int32_t sum = 0;
    for (int k = 64 * g; k < 64 * (g + 1); ++k) {
      sum += q.codes[k];
      EXPECT_NEAR(static_cast<double>(q.scale[g]) * q.codes[k], x[k], q.scale[g] * 0.51);
    }
    EXPECT_EQ(q.code_sum[g], sum);
  }
}

// Every operation on one row, one output after the other.
std::vector<float> run_all(const Table& t, const std::vector<float>& x, const std::vector<float>& w,
                           float eps) {
  const int n = static_cast<int>(x.size());
  std::vector<float> all, y(n);
  const auto keep = [&] { all.insert(all.end(), y.begin(), y.end()); };
  t.rms_norm(x.data(), w.data(), eps, n, y.data()), keep();
  t.rms_norm(x.data(), nullptr, 0, n, y.data()), keep();
  t.gated(Activation::silu, x.data(), w.data(), n, y.data()), keep();
  t.gated(Activation::gelu_tanh, x.data(), w.data(), n, y.data()), keep();
  t.layer_norm(x.data(), w.data(), w.data(), eps, n, y.data()), keep();
  t.layer_norm(x.data(), nullptr, nullptr, 0, n, y.data()), keep();
  t.scale(w[0], x.data(), n, y.data()), keep();
  t.add(x.data(), w.data(), n, y.data()), keep();
  t.finish(w[0], x.data(), n, y.data()), keep();
  for (bool traditional : {false, true})
    for (int dims : {n / 2 * 2, n / 3 * 2}) {
      y = x;
      t.rotate(y.data(), w.data(), w.data() + n / 2, dims, traditional), keep();
    }
  return all;
}

TEST(Rows, EveryTargetGivesTheReferencesBits) {
  for (int n : {1, 2, 7, 15, 16, 17, 33, 64, 100, 576, 1000})
    for (bool wild : {false, true})
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        TestRandom rng(seed * 1000 + n);
        const auto x = rng.values(n, wild), w = rng.values(n, wild);
        const auto want = run_all(reference_table(), x, w, 1e-5f);
        for (const Table* t : fused_tables()) expect_same(run_all(*t, x, w, 1e-5f), want, t->name);
      }
}

TEST(Rows, OutputsMayBeInputs) {
  TestRandom rng(8);
  constexpr int n = 77;
  const auto x = rng.units(n), w = rng.units(n);
  std::vector<float> y(n);
  for (const Table* t : all_tables()) {
    auto in_place = x;
    t->rms_norm(x.data(), w.data(), 1e-5f, n, y.data());
    t->rms_norm(in_place.data(), w.data(), 1e-5f, n, in_place.data());
    expect_same(in_place, y, t->name);
    in_place = x;
    t->layer_norm(x.data(), w.data(), w.data(), 1e-5f, n, y.data());
    t->layer_norm(in_place.data(), w.data(), w.data(), 1e-5f, n, in_place.data());
    expect_same(in_place, y, t->name);
    in_place = x;
    t->scale(3, x.data(), n, y.data());
    t->scale(3, in_place.data(), n, in_place.data());
    expect_same(in_place, y, t->name);
    in_place = x;
    t->gated(Activation::silu, x.data(), w.data(), n, y.data());
    t->gated(Activation::silu, in_place.data(), w.data(), n, in_place.data());
    expect_same(in_place, y, t->name);
    t->add(x.data(), w.data(), n, y.data());
    for (bool first : {true, false}) {
      in_place = first ? x : w;
      t->add(first ? in_place.data() : x.data(), first ? w.data() : in_place.data(), n,
             in_place.data());
      expect_same(in_place, y, t->name);
    }
  }
}

TEST(Rows, EveryTargetIsNearTheFormulas) {
  TestRandom rng(11);
  const int n = 1002;
  auto x = rng.units(n);
  const auto w = rng.units(n);
  for (float& v : x) v *= 30;
  double mean = 0, squares = 0;
  for (float v : x) mean += static_cast<double>(v) / n, squares += static_cast<double>(v) * v;
  for (const Table* t : all_tables()) {
    std::vector<float> y(n);
    t->rms_norm(x.data(), w.data(), 1e-5f, n, y.data());
    for (int i = 0; i < n; ++i)
      EXPECT_NEAR(y[i], x[i] / std::sqrt(squares / n + 1e-5) * w[i], 1e-6) << t->name;
    t->layer_norm(x.data(), w.data(), x.data(), 1e-5f, n, y.data());
    for (int i = 0; i < n; ++i)
      EXPECT_NEAR(y[i], (x[i] - mean) / std::sqrt(squares / n - mean * mean + 1e-5) * w[i] + x[i],
                  1e-5)
          << t->name;
    for (bool traditional : {false, true}) {
      y = x;
      t->rotate(y.data(), w.data(), w.data() + n / 2, n, traditional);
      for (int i = 0; i < n / 2; ++i) {
        const int a = traditional ? 2 * i : i, b = traditional ? 2 * i + 1 : n / 2 + i;
        const double cos = w[i], sin = w[n / 2 + i];
        EXPECT_NEAR(y[a], x[a] * cos - x[b] * sin, 1e-5) << t->name;
        EXPECT_NEAR(y[b], x[a] * sin + x[b] * cos, 1e-5) << t->name;
      }
    }
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Rows, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({});
    for (uint64_t seed = 1; seed <= 100; ++seed) {
      TestRandom rng(seed);
      const int n = 1 + rng.below(200);
      const auto x = rng.values(n, seed % 2 == 0), w = rng.values(n, false);
      hash = fingerprint(run_all(*t, x, w, 1e-6f), hash);
      const Quantized q = quantize(*t, rng.values(64, false), 32);
      hash = fingerprint({q.codes.begin(), q.codes.end()}, hash);
      hash = fingerprint(q.scale, fingerprint(q.sum, hash));
    }
    EXPECT_EQ(hash, 17196661149247288573u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

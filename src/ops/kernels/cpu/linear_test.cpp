// Every instruction set against the scalar reference, bit for bit, and the row law of products.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/test_random.h"

namespace tenon::cpu {
namespace {

// Targets with fused multiply-add, the reference left out.
std::vector<const Table*> fused_tables() {
  std::vector<const Table*> tables;
  for (const Table* t : all_tables())
    if (t != all_tables().front() && std::strcmp(t->name, "sse4") != 0) tables.push_back(t);
  return tables;
}
const Table& reference() { return *all_tables().front(); }

// Equal bits; any NaN equals any NaN.
void expect_same(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(bits_as<uint32_t>(got[i]), bits_as<uint32_t>(want[i]))
        << what << " at " << i << ": " << got[i] << " and " << want[i];
  }
}

std::vector<Packing> packings() {
  std::vector<Packing> all;
  const ScaleType scales[] = {ScaleType::f32, ScaleType::f16, ScaleType::bf16};
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64, 128})
      for (ScaleType scale : scales) {
        all.push_back({CodeType::integer, bits, group, 0, scale, true});
        all.push_back({CodeType::integer, bits, group, 1 << (bits - 1), scale, false});
      }
  for (int bits : {2, 4, 5, 6})
    for (int group : {16, 32}) {
      if (bits == 5 && group == 16) continue;  // a 1-bit plane wants groups of 32
      all.push_back({CodeType::integer, bits, group, 0, ScaleType::two_level, true});
      all.push_back({CodeType::integer, bits, group, 3, ScaleType::two_level, false});
    }
  all.push_back({CodeType::fp4, 4, 32, 0, ScaleType::bf16, false});
  all.push_back({CodeType::fp4, 4, 16, 0, ScaleType::f16, false});
  all.push_back({CodeType::fp8, 8, 32, 0, ScaleType::bf16, false});
  all.push_back({CodeType::f32, 32, kDenseGroup, 0, ScaleType::none, false});
  all.push_back({CodeType::f16, 16, kDenseGroup, 0, ScaleType::none, false});
  all.push_back({CodeType::bf16, 16, kDenseGroup, 0, ScaleType::none, false});
  return all;
}

// Random codes and scales that the packing's ScaleType holds exactly.
void random_group(TestRandom& rng, const Packing& p, StoredGroup& s) {
  const auto half = [&] { return f16_to_f32(f32_to_f16(rng.unit() * 0.1f)); };
  const auto brain = [&] { return bits_as<float>(bits_as<uint32_t>(rng.unit()) & 0xFFFF0000); };
  const auto scale = [&] { return p.scale == ScaleType::bf16 ? brain() : half(); };
  for (int k = 0; k < p.group; ++k) {
    auto* at = reinterpret_cast<std::byte*>(s.codes) + k * (p.bits <= 8 ? 1 : p.bits / 8);
    const float value = rng.unit();
    if (p.code == CodeType::f32) std::memcpy(at, &value, 4);
    else if (p.code == CodeType::f16) store_f16(value, at);
    else if (p.code == CodeType::bf16) store_bf16(brain(), at);
    else s.codes[k] = static_cast<uint8_t>(rng.below(1 << p.bits));
    if (p.code == CodeType::fp8 && (s.codes[k] & 0x7F) == 0x7F) s.codes[k] ^= 1;  // no NaN
  }
  s.scale = scale(), s.min = scale();
  s.scale_code = static_cast<int8_t>(rng.below(255) - 127);
  s.min_code = static_cast<int8_t>(rng.below(255) - 127);
}

std::shared_ptr<PackedMatrix> random_matrix(const Packing& p, int out, int in, uint64_t seed) {
  GroupReader reader;
  reader.packing = p;
  reader.out = out, reader.in = in;
  reader.read = [&](int64_t row, int64_t group, StoredGroup& s) {
    TestRandom rng(seed * 1000003 + row * 4099 + group);
    random_group(rng, p, s);
    TestRandom of_super(seed * 31 + row * 4099 + group * p.group / kSuperBlock);
    s.super_scale = f16_to_f32(f32_to_f16(of_super.unit() * 0.01f));
    s.super_min = f16_to_f32(f32_to_f16(of_super.unit() * 0.01f));
  };
  auto m = pack_groups(reader, [](int n, const std::function<void(int)>& work) {
    for (int i = 0; i < n; ++i) work(i);
  });
  if (seed % 2 == 1) m->bias = TestRandom(seed).units(out);
  return m;
}

// out [rows, w.out] by one table, rows in one call, tiles in pieces of `tiles`.
std::vector<float> product(const Table& t, const PackedMatrix& w, const std::vector<float>& x,
                           int tiles) {
  const int rows = static_cast<int>(x.size()) / w.in, groups = w.in / w.packing.group + 1;
  std::vector<int16_t> codes(x.size());
  std::vector<float> scales(rows * groups), sums(rows * groups);
  std::vector<int32_t> code_sums(rows * groups);
  std::vector<QuantizedRow> quantized;
  for (int m = 0; m < rows; ++m) {
    quantized.push_back({&codes[m * w.in], &scales[m * groups], &sums[m * groups],
                         &code_sums[m * groups]});
    if (w.packing.is_integer()) t.quantize(&x[m * w.in], w.in, w.packing.group, quantized[m]);
  }
  std::vector<float> out(static_cast<size_t>(rows) * w.out);
  for (int begin = 0; begin < w.num_tiles(); begin += tiles)
    t.linear({&w, rows, w.packing.is_integer() ? quantized.data() : nullptr,
              w.packing.is_integer() ? nullptr : x.data(), w.in, begin,
              std::min(begin + tiles, w.num_tiles()), out.data(), w.out});
  return out;
}

int random_in(TestRandom& rng, const Packing& p) {
  if (p.scale == ScaleType::two_level) return kSuperBlock * (1 + rng.below(3));
  if (p.code == CodeType::f32 || p.code == CodeType::f16 || p.code == CodeType::bf16)
    return 1 + rng.below(300);
  return p.group * (1 + rng.below(6));
}

TEST(Linear, EveryTargetGivesTheReferencesBits) {
  uint64_t seed = 1;
  for (const Packing& p : packings())
    for (int rows : {1, 2, 3, 4, 5, 9, 17}) {
      TestRandom rng(++seed);
      const auto w = random_matrix(p, 1 + rng.below(50), random_in(rng, p), seed);
      const auto x = rng.units(static_cast<size_t>(rows) * w->in);
      const auto want = product(reference(), *w, x, w->num_tiles());
      for (const Table* t : fused_tables()) expect_same(product(*t, *w, x, 1), want, t->name);
    }
}

TEST(Linear, RowsAloneEqualRowsTogether) {
  uint64_t seed = 1;
  for (const Packing& p : packings()) {
    TestRandom rng(++seed);
    const auto w = random_matrix(p, 40, random_in(rng, p), seed);
    const auto x = rng.units(size_t{16} * w->in);
    for (const Table* t : all_tables()) {
      const auto together = product(*t, *w, x, w->num_tiles());
      for (int m = 0; m < 16; ++m) {
        const std::vector<float> row(x.begin() + m * w->in, x.begin() + (m + 1) * w->in);
        const std::vector<float> want(together.begin() + m * w->out,
                                      together.begin() + (m + 1) * w->out);
        expect_same(product(*t, *w, row, 1), want, t->name);
      }
    }
  }
}

// Against float64 over the unpacked weights: the reference itself must be right.
TEST(Linear, TheReferenceIsNearTheExactProduct) {
  uint64_t seed = 7;
  for (const Packing& p : packings()) {
    TestRandom rng(++seed);
    const auto w = random_matrix(p, 20, random_in(rng, p), seed * 2);
    const auto x = rng.units(w->in);
    const auto got = product(reference(), *w, x, 1);
    std::vector<float> row(w->in);
    for (int o = 0; o < w->out; ++o) {
      w->unpack_row(o, row.data());
      double want = 0, size = 0;
      for (int k = 0; k < w->in; ++k) {
        want += static_cast<double>(row[k]) * x[k];
        size += std::abs(static_cast<double>(row[k]) * x[k]);
      }
      ASSERT_NEAR(got[o], want, 1e-4 * size + 1e-6) << p.bits << " bits, output " << o;
    }
  }
}

TEST(Linear, ExtremeActivations) {
  const float odd[] = {0, -0.0f, 1e-42f, 1e-31f, 3e38f, -3e38f, HUGE_VALF, NAN};
  for (const Packing& p : packings()) {
    const int in = p.scale == ScaleType::two_level ? kSuperBlock : 2 * p.group;
    const auto w = random_matrix(p, 17, in, 4);
    for (float value : odd) {
      TestRandom rng(3);
      auto x = rng.units(in);
      x[in / 2] = value;
      const auto want = product(reference(), *w, x, 2);
      for (const Table* t : fused_tables()) expect_same(product(*t, *w, x, 2), want, t->name);
      if (std::isfinite(value) || !p.is_integer()) continue;
      for (float y : want) EXPECT_TRUE(std::isnan(y));
    }
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Linear, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = 1469598103934665603u, seed = 100;
    for (const Packing& p : packings()) {
      TestRandom rng(++seed);
      const auto w = random_matrix(p, 33, random_in(rng, p), seed);
      hash = fingerprint(product(*t, *w, rng.units(size_t{3} * w->in), 1), hash);
    }
    EXPECT_EQ(hash, 11006342229082865002u) << t->name;
  }
}

TEST(Rows, EveryTargetGivesTheReferencesBits) {
  for (int n : {1, 7, 16, 33, 64, 576, 1000}) {
    TestRandom rng(n);
    auto x = rng.units(n), w = rng.units(n);
    for (float& v : x) v *= 20;
    const auto run = [&](const Table& t) {
      std::vector<float> all, y(n);
      const auto keep = [&] { all.insert(all.end(), y.begin(), y.end()); };
      t.rms_norm(x.data(), w.data(), 1e-5f, n, y.data()), keep();
      t.rms_norm(x.data(), nullptr, 0, n, y.data()), keep();
      t.gated(Activation::silu, x.data(), w.data(), n, y.data()), keep();
      t.gated(Activation::gelu_tanh, x.data(), w.data(), n, y.data()), keep();
      t.add(x.data(), w.data(), n, y.data()), keep();
      for (bool traditional : {false, true}) {
        y = x;
        t.rotate(y.data(), w.data(), x.data(), n / 2 * 2, traditional), keep();
      }
      return all;
    };
    for (const Table* t : fused_tables()) expect_same(run(*t), run(reference()), t->name);
  }
}

TEST(Rows, ActivationsAreNearTheirFormulas) {
  std::vector<float> x, one;
  for (float v = -100; v < 100; v += 0.37f) x.push_back(v), one.push_back(1);
  std::vector<float> y(x.size());
  const int n = static_cast<int>(x.size());
  reference().gated(Activation::silu, x.data(), one.data(), n, y.data());
  for (int i = 0; i < n; ++i)
    EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-static_cast<double>(x[i]))), 3e-7 * std::abs(x[i]));
  reference().gated(Activation::gelu_tanh, x.data(), one.data(), n, y.data());
  for (int i = 0; i < n; ++i) {
    const double v = x[i], u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    EXPECT_NEAR(y[i], 0.5 * v * (1 + std::tanh(u)), 5e-7 * std::abs(v) + 1e-7);
  }
}

}  // namespace
}  // namespace tenon::cpu

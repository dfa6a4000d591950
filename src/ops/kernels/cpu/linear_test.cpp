// Products on every instruction set against the scalar reference, bit for bit, and their laws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/test_tables.h"

namespace tenon::cpu {
namespace {

std::vector<Packing> packings() {
  std::vector<Packing> all;
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {16, 32, 64, 128}) {
      if (group == 16 && bits % 2 == 1) continue;  // a 1-bit plane wants groups of 32
      for (ScaleType s : {ScaleType::f32, ScaleType::f16, ScaleType::bf16, ScaleType::two_level}) {
        all.push_back({CodeType::integer, bits, group, 0, s, true});
        all.push_back({CodeType::integer, bits, group, 1 << (bits - 1), s, false});
      }
      all.push_back({CodeType::integer, bits, group, 3, ScaleType::f16, true});
    }
  all.push_back({CodeType::fp4, 4, 32, 0, ScaleType::bf16, false});
  all.push_back({CodeType::fp4, 4, 16, 0, ScaleType::f16, false});
  all.push_back({CodeType::fp8, 8, 32, 0, ScaleType::bf16, false});
  all.push_back({CodeType::f32, 32, kDenseGroup, 0, ScaleType::none, false});
  all.push_back({CodeType::f16, 16, kDenseGroup, 0, ScaleType::none, false});
  all.push_back({CodeType::bf16, 16, kDenseGroup, 0, ScaleType::none, false});
  return all;
}

std::string describe(const Packing& p) {
  return fmt::format("code {} of {} bits, group {}, zero {}, scale {}{}", static_cast<int>(p.code),
                     p.bits, p.group, p.zero, static_cast<int>(p.scale), p.has_min ? ", min" : "");
}

enum class Weights { tame, wild };  // wild: any bits, NaN and infinities too

// What the type of the scale holds of a float.
float rounded(ScaleType type, float value) {
  if (type == ScaleType::f16) return f16_to_f32(f32_to_f16(value));
  if (type == ScaleType::bf16) return bits_as<float>(bits_as<uint32_t>(value) & 0xFFFF0000);
  return value;
}

void random_group(TestRandom& rng, const Packing& p, Weights weights, StoredGroup& s) {
  const auto value = [&] { return weights == Weights::wild ? rng.any() : rng.unit(); };
  for (int k = 0; k < p.group; ++k) {
    auto* at = reinterpret_cast<std::byte*>(s.codes) + k * (p.bits <= 8 ? 1 : p.bits / 8);
    const float weight = value();
    switch (p.code) {
      case CodeType::f32: std::memcpy(at, &weight, 4); break;
      case CodeType::f16: store_f16(weight, at); break;
      case CodeType::bf16: store_bf16(weight, at); break;
      default: s.codes[k] = static_cast<uint8_t>(rng.below(1 << p.bits));
    }
    if (p.code == CodeType::fp8 && (s.codes[k] & 0x7F) == 0x7F) s.codes[k] ^= 1;  // no NaN
  }
  s.scale = rounded(p.scale, value() * 0.125f);
  s.min = rounded(p.scale, value());
  s.scale_code = static_cast<int8_t>(rng.below(255) - 127);
  s.min_code = static_cast<int8_t>(rng.below(255) - 127);
}

std::shared_ptr<PackedMatrix> random_matrix(const Packing& p, int out, int in, uint64_t seed,
                                            Weights weights = Weights::tame) {
  GroupReader reader;
  reader.packing = p;
  reader.out = out, reader.in = in;
  reader.read = [&](int64_t row, int64_t group, StoredGroup& s) {
    TestRandom rng(seed * 1000003 + row * 4099 + group);
    random_group(rng, p, weights, s);
    TestRandom of_super(seed * 31 + row * 4099 + group * p.group / kSuperBlock);
    const auto value = [&] { return weights == Weights::wild ? of_super.any() : of_super.unit(); };
    s.super_scale = rounded(ScaleType::f16, value() * 0x1p-7f);
    s.super_min = rounded(ScaleType::f16, value() * 0x1p-7f);
  };
  auto m = pack_groups(reader, [](int n, const std::function<void(int)>& work) {
    for (int i = 0; i < n; ++i) work(i);
  });
  if (seed % 2 == 1) m->bias = TestRandom(seed).units(out);
  return m;
}

int random_in(TestRandom& rng, const Packing& p) {
  if (p.scale == ScaleType::two_level) return kSuperBlock * (1 + rng.below(3));
  return p.scale == ScaleType::none ? 1 + rng.below(300) : p.group * (1 + rng.below(6));
}

// Rows as a table's `linear` takes them.
class Rows {
 public:
  Rows(const Table& t, const PackedMatrix& w, const std::vector<float>& x)
      : integer_(w.packing.is_integer()), x_(x), in_(w.in) {
    for (int m = 0; m < num(); ++m) {
      if (!integer_) break;
      const int groups = in_ / w.packing.group;
      codes_.emplace_back(in_);
      scales_.emplace_back(2 * groups);
      code_sums_.emplace_back(groups);
      quantized_.push_back(
          {codes_[m].data(), scales_[m].data(), scales_[m].data() + groups, code_sums_[m].data()});
      t.quantize(&x[m * in_], in_, w.packing.group, quantized_[m]);
    }
  }
  int num() const { return static_cast<int>(x_.size()) / in_; }
  const QuantizedRow* quantized() const { return integer_ ? quantized_.data() : nullptr; }
  const float* x() const { return integer_ ? nullptr : x_.data(); }

 private:
  bool integer_;
  const std::vector<float>& x_;
  int in_;
  std::vector<std::vector<int16_t>> codes_;
  std::vector<std::vector<float>> scales_;  // then sums
  std::vector<std::vector<int32_t>> code_sums_;
  std::vector<QuantizedRow> quantized_;
};

// out [rows, w.out] by one table, rows in one call, tiles in pieces of `tiles`.
std::vector<float> product(const Table& t, const PackedMatrix& w, const std::vector<float>& x,
                           int tiles = 1) {
  const Rows rows(t, w, x);
  std::vector<float> out(static_cast<size_t>(rows.num()) * w.out);
  for (int begin = 0; begin < w.num_tiles(); begin += tiles)
    t.linear({&w, rows.num(), rows.quantized(), rows.x(), w.in, begin,
              std::min(begin + tiles, w.num_tiles()), out.data(), w.out});
  return out;
}

void expect_same_products(const PackedMatrix& w, const std::vector<float>& x) {
  const auto want = product(reference_table(), w, x, w.num_tiles());
  for (const Table* t : fused_tables())
    expect_same(product(*t, w, x), want,
                fmt::format("{}: [{}, {}], {}", t->name, w.out, w.in, describe(w.packing)));
}

TEST(Linear, EveryTargetGivesTheReferencesBits) {
  uint64_t seed = 1;
  for (const Packing& p : packings())
    for (int rows : {1, 2, 3, 4, 5, 9, 17}) {
      TestRandom rng(++seed);
      const auto w = random_matrix(p, 1 + rng.below(50), random_in(rng, p), seed);
      expect_same_products(*w, rng.units(static_cast<size_t>(rows) * w->in));
    }
}

// Any weights and any activations in any shape.
TEST(Linear, WildWeightsAndActivations) {
  const auto all = packings();
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    TestRandom rng(seed);
    const Packing& p = all[rng.below(static_cast<int>(all.size()))];
    const auto weights = rng.one_in(2) ? Weights::wild : Weights::tame;
    const auto w = random_matrix(p, 1 + rng.below(40), random_in(rng, p), seed, weights);
    auto x = rng.units(static_cast<size_t>(1 + rng.below(6)) * w->in);
    const int odd = 1 << rng.below(12);
    for (float& v : x) v = rng.one_in(odd) ? rng.odd() : rng.one_in(odd) ? rng.any() : v;
    expect_same_products(*w, x);
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
        expect_same(product(*t, *w, row), want, t->name);
      }
    }
  }
}

// Strides wider than the rows, and no write outside the tiles asked for.
TEST(Linear, StridesAndTileRanges) {
  constexpr int kRows = 5, kOut = 53, kIn = 100, kPad = 7;
  const Packing dense{CodeType::f16, 16, kDenseGroup, 0, ScaleType::none, false};
  const auto w = random_matrix(dense, kOut, kIn, 3);
  const auto x = TestRandom(4).units(size_t{kRows} * (kIn + kPad));
  std::vector<float> packed_x;
  for (int m = 0; m < kRows; ++m)
    packed_x.insert(packed_x.end(), x.begin() + m * (kIn + kPad),
                    x.begin() + m * (kIn + kPad) + kIn);
  for (const Table* t : all_tables()) {
    const auto want = product(*t, *w, packed_x);
    for (int begin = 0; begin < w->num_tiles(); ++begin)
      for (int end = begin; end <= w->num_tiles(); ++end) {
        std::vector<float> out(size_t{kRows} * (kOut + kPad), 77);
        t->linear(
            {w.get(), kRows, nullptr, x.data(), kIn + kPad, begin, end, out.data(), kOut + kPad});
        for (int m = 0; m < kRows; ++m)
          for (int o = 0; o < kOut + kPad; ++o) {
            const bool asked = o >= begin * kTileOutputs && o < std::min(end * kTileOutputs, kOut);
            ASSERT_EQ(out[m * (kOut + kPad) + o], asked ? want[m * kOut + o] : 77) << t->name;
          }
      }
  }
}

// Against float64 over the unpacked weights: the reference itself must be right, and targets
// without fused multiply-add near it.
TEST(Linear, EveryTargetIsNearTheExactProduct) {
  uint64_t seed = 7;
  for (const Packing& p : packings()) {
    TestRandom rng(++seed);
    const auto w = random_matrix(p, 20, random_in(rng, p), seed * 2);
    const auto x = rng.units(w->in);
    std::vector<float> row(w->in);
    for (const Table* t : all_tables()) {
      const auto got = product(*t, *w, x);
      for (int o = 0; o < w->out; ++o) {
        w->unpack_row(o, row.data());
        double want = 0, size = 0;
        for (int k = 0; k < w->in; ++k) {
          want += static_cast<double>(row[k]) * x[k];
          size += std::abs(static_cast<double>(row[k]) * x[k]);
        }
        ASSERT_NEAR(got[o], want, 1e-4 * size + 1e-6) << t->name << ": " << describe(p);
      }
    }
  }
}

// All codes and activations at their largest: the integer sums' range.
TEST(Linear, LargestSums) {
  for (const Packing& p : packings()) {
    if (p.code != CodeType::integer) continue;
    GroupReader reader{p, 17, p.scale == ScaleType::two_level ? kSuperBlock : p.group, {}, {}};
    reader.read = [&](int64_t row, int64_t, StoredGroup& s) {
      std::memset(s.codes, row % 2 == 0 ? (1 << p.bits) - 1 : 0, sizeof(s.codes));
      s.scale = s.min = s.super_scale = s.super_min = 1;
      s.scale_code = s.min_code = 127;
    };
    const auto w = pack_groups(reader, [](int n, const std::function<void(int)>& work) {
      for (int i = 0; i < n; ++i) work(i);
    });
    for (float value : {1.0f, -1.0f}) {
      const std::vector<float> x(w->in, value);
      expect_same_products(*w, x);
      std::vector<float> row(w->in);
      w->unpack_row(0, row.data());
      const double want = static_cast<double>(row[0]) * w->in * value;
      EXPECT_NEAR(product(reference_table(), *w, x)[0], want, 1e-6 * std::abs(want)) << describe(p);
    }
  }
}

// A group with NaN or an infinity makes NaN of every output.
TEST(Linear, NanAndInfinityReachEveryOutput) {
  for (const Packing& p : packings()) {
    if (!p.is_integer()) continue;
    const int in = p.scale == ScaleType::two_level ? kSuperBlock : 2 * p.group;
    const auto w = random_matrix(p, 17, in, 4);
    for (float value : {HUGE_VALF, -HUGE_VALF, NAN}) {
      auto x = TestRandom(3).units(in);
      x[in / 2] = value;
      expect_same_products(*w, x);
      for (float y : product(reference_table(), *w, x)) EXPECT_TRUE(std::isnan(y)) << describe(p);
    }
  }
}

// The same number on every architecture (scripts/test-aarch64 runs it there).
TEST(Linear, Fingerprint) {
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, "sse4") == 0) continue;
    uint64_t hash = fingerprint({}), seed = 100;
    for (const Packing& p : packings()) {
      TestRandom rng(++seed);
      const auto w = random_matrix(p, 33, random_in(rng, p), seed);
      hash = fingerprint(product(*t, *w, rng.units(size_t{3} * w->in)), hash);
    }
    EXPECT_EQ(hash, 11002006953108199335u) << t->name;
  }
}

}  // namespace
}  // namespace tenon::cpu

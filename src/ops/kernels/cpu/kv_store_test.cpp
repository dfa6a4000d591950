// How keys and values lie in pages: their quantization against mx.quantize's, every instruction set
// against the scalar reference, and the layouts themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernels/cpu/test_kv.h"

namespace tenon::cpu {
namespace {

// Keys and values that are both x, in a page of their own.
std::vector<std::byte> page_of(const Table& t, const KvLayout& kv, int slot,
                               const std::vector<float>& x) {
  std::vector<std::byte> page(kv.page_bytes(), std::byte{0xFF});
  t.store_token(kv, page.data(), slot, x.data(), x.data());
  return page;
}
// What they are after that: x twice.
std::vector<float> quantized(const Table& t, const KvLayout& kv, const std::vector<float>& x) {
  const auto page = page_of(t, kv, 5, x);
  return stored_token(kv, page.data(), 5, 0);
}

// mx.quantize's codes, scale and bias of one group, and its rows of values.
TEST(KvStore, AGroupAsMlxQuantizesIt) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i * 37 % 64 - 20) / 7;
  const int k8[] = {255, 105, 214, 65, 174, 24,  134, 243, 93, 202, 53,  162, 12,  121, 231, 81,
                    190, 40,  150, 0,  109, 219, 69,  178, 28, 138, 247, 97,  206, 57,  166, 16};
  const int k4[] = {15, 6, 12, 4, 10, 1,  8, 14, 5, 12, 3,  9, 1,  7, 13, 5,
                    11, 2, 9,  0, 6,  13, 4, 10, 2, 8,  14, 6, 12, 3, 10, 1};
  for (const Table* t : all_tables())
    for (KvType type : {KvType::q8, KvType::q4}) {
      const float scale = type == KvType::q8 ? -0x1.213562p-5f : -0x1.3a83a8p-1f;
      const auto got = quantized(*t, {1, 32, 32, type, 32}, x);
      const int* codes = type == KvType::q8 ? k8 : k4;
      for (int i = 0; i < 64; ++i) {
        const auto code = static_cast<float>(codes[i % 32]);
        EXPECT_EQ(got[i], scale * code + 0x1.892492p+2f) << t->name << " " << i;
      }
    }
}

// Rows of all magnitudes, off center and of one sign among them. The numbers are fingerprints of
// mx.dequantize(mx.quantize(x)) in MLX 0.32.4 on float32.
TEST(KvStore, RowsAsMlxQuantizesThem) {
  struct Case {
    KvType type;
    int group;
    uint64_t mlx;
  };
  const Case cases[] = {
      {KvType::q8, 32, 10068685017136747905u},  {KvType::q8, 64, 8394509288003957921u},
      {KvType::q8, 128, 16268941207612936561u}, {KvType::q4, 32, 4393614711980854708u},
      {KvType::q4, 64, 731968510401725615u},    {KvType::q4, 128, 3320764674164018542u}};
  for (const Table* t : all_tables())
    for (const Case& c : cases) {
      uint64_t keys = fingerprint({}), values = keys;
      for (int row = 0; row < 100; ++row) {
        auto x = TestRandom(row).units(256);
        for (float& v : x) {
          v *= std::ldexp(1.0f, row % 40 - 20);
          if (row % 3 == 0) v += 1;
          if (row % 5 == 0) v = std::abs(v);
          if (row % 7 == 0) v = -std::abs(v);
        }
        const auto got = quantized(*t, {1, 256, 256, c.type, c.group}, x);
        keys = fingerprint({got.begin(), got.begin() + 256}, keys);
        values = fingerprint({got.begin() + 256, got.end()}, values);
      }
      EXPECT_EQ(keys, c.mlx) << t->name << ", " << kv_bits(c.type) << " bits, " << c.group;
      EXPECT_EQ(values, c.mlx) << t->name;
    }
}

// Even targets without fused multiply-add give the same bytes: there is none in it.
TEST(KvStore, AnyValuesGiveTheReferencesBytes) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    TestRandom rng(seed);
    const int group = 32 << rng.below(3);
    const KvLayout kv{1, group * 2, group * 2, rng.one_in(2) ? KvType::q8 : KvType::q4, group};
    auto x = rng.units(2 * group);
    const float size = std::ldexp(1.0f, rng.below(270) - 140);
    const bool same_all = rng.one_in(4);
    for (float& v : x) v = rng.one_in(200) ? rng.odd() : same_all ? x[0] * size : v * size;
    const auto want = page_of(reference_table(), kv, 63, x);
    std::vector<float> raw, got;
    append_raw(kv, want.data(), kv.k_dim, raw);
    append_raw(kv, want.data() + kv.v_offset(0), kv.v_dim, raw);
    for (const Table* t : all_tables()) {
      const auto page = page_of(*t, kv, 63, x);
      got.clear();
      append_raw(kv, page.data(), kv.k_dim, got);
      append_raw(kv, page.data() + kv.v_offset(0), kv.v_dim, got);
      expect_same(got, raw, fmt::format("{}, seed {}", t->name, seed));
    }
  }
}

// What is not finite spoils its group and no other; a constant is kept as it is, however large.
TEST(KvStore, NanAndInfinityStayInTheirGroup) {
  for (const Table* t : all_tables())
    for (KvType type : {KvType::q8, KvType::q4})
      for (float bad : {NAN, HUGE_VALF, -HUGE_VALF, 3.4e38f}) {
        std::vector<float> x(96, 0.5f);
        x[40] = bad, x[41] = -3.4e38f;
        const auto got = quantized(*t, {1, 96, 96, type, 32}, x);
        for (int i = 0; i < 192; ++i)
          if (i % 96 / 32 == 1)
            EXPECT_TRUE(std::isnan(got[i])) << t->name << " " << i;
          else
            EXPECT_EQ(got[i], 0.5f) << t->name << " " << i;
        for (float constant : {0.0f, -0.0f, 1e-30f, 7.0f, -3.4e38f, 3.4e38f})
          for (float v : quantized(*t, {1, 32, 32, type, 32}, std::vector<float>(32, constant)))
            EXPECT_NEAR(v, constant, 1e-7);
      }
}

TEST(KvStore, ATokenWritesItsSlotAlone) {
  for (KvType type : {KvType::f32, KvType::f16, KvType::q8, KvType::q4})
    for (const Table* t : all_tables()) {
      const KvLayout kv{2, 64, 96, type, 32};
      TestRandom rng(3);
      std::vector<std::byte> page(kv.page_bytes());
      std::vector<std::vector<float>> before;
      for (int slot = 0; slot < kPageTokens; ++slot)
        t->store_token(kv, page.data(), slot, rng.units(128).data(), rng.units(192).data());
      for (int slot = 0; slot < kPageTokens; ++slot)
        before.push_back(stored_token(kv, page.data(), slot, 1));
      t->store_token(kv, page.data(), 17, rng.units(128).data(), rng.units(192).data());
      for (int slot = 0; slot < kPageTokens; ++slot) {
        const bool same = stored_token(kv, page.data(), slot, 1) == before[slot];
        EXPECT_EQ(same, slot != 17) << t->name << " " << slot;
      }
    }
}

TEST(KvStore, LayoutsFillTheirPages) {
  for (KvType type : {KvType::f32, KvType::f16, KvType::q8, KvType::q4})
    for (int group : {32, 64, 128}) {
      const KvLayout kv{3, 384, 128, type, group};
      ASSERT_TRUE(kv.check().ok());
      const size_t scales = is_quantized(type) ? 2 * kPageTokens * 4 / group : 0;
      const size_t head = size_t{kPageTokens} * 512 * kv_bits(type) / 8 + 512 * scales;
      EXPECT_EQ(kv.page_bytes(), 3 * head);
      EXPECT_EQ(kv.k_offset(2), 2 * head);
      EXPECT_EQ(kv.v_offset(2) - kv.k_offset(2), head / 4 * 3);
      for (size_t at : {kv.page_bytes(), kv.k_offset(1), kv.v_offset(1), kv.scales_offset(384)})
        EXPECT_EQ(at % 64, 0);
    }
}

TEST(KvStore, LayoutsThatCannotBeAreNamed) {
  const auto message = [](KvLayout kv) {
    const Status status = kv.check();
    return status.ok() ? std::string("ok") : status.error().message;
  };
  EXPECT_EQ(message({1, 1, 1024, KvType::f16}), "ok");
  EXPECT_THAT(message({1, 1025, 64, KvType::f16}), testing::HasSubstr("1025"));
  EXPECT_THAT(message({1, 64, 0, KvType::f32}), testing::HasSubstr("width 0"));
  EXPECT_THAT(message({1, 64, 80, KvType::q8, 32}), testing::HasSubstr("width 80"));
  EXPECT_THAT(message({1, 64, 64, KvType::q4, 48}), testing::HasSubstr("48"));
  EXPECT_THAT(message({1, 64, 64, KvType::q4, 0}), testing::HasSubstr("groups of 0"));
}

}  // namespace
}  // namespace tenon::cpu

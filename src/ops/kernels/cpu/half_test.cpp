// The small floats, all of them, against the compiler's own or against their definitions.
#include "ops/kernels/cpu/half.h"

#include <gtest/gtest.h>

#include "ops/kernels/cpu/test_sources.h"

namespace tenon::cpu {
namespace {

bool same(float a, float b) {
  return bits_as<uint32_t>(a) == bits_as<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// The compiler's rounding of a float.
uint16_t rounded(float value) { return bits_as<uint16_t>(static_cast<Half>(value)); }

TEST(Half, AllFloat16) {
  for (uint32_t i = 0; i < 1u << 16; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float value = f16_to_f32(h);
    ASSERT_TRUE(same(value, static_cast<float>(bits_as<Half>(h)))) << i;
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_f16(value) & 0x7E00, 0x7E00) << i;
      ASSERT_EQ(std::signbit(value), h >> 15) << i;
    } else {
      ASSERT_EQ(f32_to_f16(value), h);
    }
  }
}

// Halfway between neighbours, and just beside: the largest of them is where infinity begins.
TEST(Half, TiesRoundToEven) {
  for (uint16_t h = 0; h < 0x7C00; ++h) {
    const double next = h == 0x7BFF ? 65536.0 : f16_to_f32(static_cast<uint16_t>(h + 1));
    const auto tie = static_cast<float>((f16_to_f32(h) + next) / 2);
    for (float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      ASSERT_EQ(f32_to_f16(value), rounded(value)) << h;
      ASSERT_EQ(f32_to_f16(-value), rounded(-value)) << h;
    }
  }
}

TEST(Half, RandomFloats) {
  Rng rng(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto value = bits_as<float>(static_cast<uint32_t>(rng()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), rounded(value)) << value;
  }
}

TEST(Half, AllBfloat16) {
  for (uint32_t i = 0; i < 1u << 16; ++i) {
    const auto stored = static_cast<uint16_t>(i);
    uint16_t again = 0;
    const float value = load_bf16(reinterpret_cast<const std::byte*>(&stored));
    ASSERT_EQ(bits_as<uint32_t>(value), i << 16);
    store_bf16(value, reinterpret_cast<std::byte*>(&again));
    ASSERT_EQ(again, stored);
  }
}

TEST(Half, SmallFloatsAsDefined) {
  for (int code = 0; code < 256; ++code) {
    const bool nan = (code & 0x7F) == 0x7F;
    const float want = nan ? NAN : static_cast<float>(small_float(code, 4, 3));
    EXPECT_TRUE(same(e4m3_to_f32(static_cast<uint8_t>(code)), want)) << code;
  }
  for (int code = 0; code < 16; ++code)
    EXPECT_EQ(kFp4Doubled[code], 2 * small_float(code, 2, 1)) << code;
}

}  // namespace
}  // namespace tenon::cpu

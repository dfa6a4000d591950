// GGUF blocks against their written definition, and the refusals of the kernel registry.
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ops/block_formats.h"

namespace tenon::ops {
namespace {

float half_at(const std::byte* p) {
  mx::float16_t h;
  std::memcpy(&h, p, 2);
  return static_cast<float>(h);
}

// One element of a block, straight from the format's description.
float element(Format format, const std::byte* block, int j) {
  const auto byte = [&](int i) { return std::to_integer<int>(block[i]); };
  const auto nibble = [&](int at) { return j < 16 ? byte(at + j) & 15 : byte(at + j - 16) >> 4; };
  const float d = half_at(block);
  if (format == Format::q4_0) return d * static_cast<float>(nibble(2) - 8);
  if (format == Format::q4_1) return d * static_cast<float>(nibble(4)) + half_at(block + 2);
  return d * static_cast<float>(static_cast<int8_t>(byte(2 + j)));
}

class Blocks : public ::testing::TestWithParam<Format> {};

TEST_P(Blocks, DequantizeAsDefined) {
  const Format format = GetParam();
  const int rows = 3, cols = 96;
  const int64_t size = format_block(format).bytes;
  std::vector<std::byte> data(rows * cols / 32 * size);
  std::mt19937 rng(5);
  for (auto& b : data) b = static_cast<std::byte>(rng());
  for (size_t at = 0; at < data.size(); at += size) {  // finite scales
    const mx::float16_t d(0.01f * static_cast<float>(rng() % 100)), m(-0.5f);
    std::memcpy(&data[at], &d, 2);
    if (format == Format::q4_1) std::memcpy(&data[at + 2], &m, 2);
  }
  const WeightView view{data, {rows, cols}, format, nullptr, "w"};
  const mx::array dense = dequantize_blocks(view);
  const AffineTriple t = affine_from_blocks(view);
  const mx::array repacked = mx::dequantize(t.weight, mx::astype(t.scales, mx::float32),
                                            mx::astype(t.biases, mx::float32), kBlockGroup, t.bits);
  mx::eval(dense, repacked);
  ASSERT_EQ(dense.shape(), (mx::Shape{rows, cols}));
  for (int i = 0; i < rows * cols; ++i) {
    const float want = element(format, &data[i / 32 * size], i % 32);
    ASSERT_EQ(dense.data<float>()[i], want) << i;
    ASSERT_EQ(repacked.data<float>()[i], want) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Affine, Blocks,
                         ::testing::Values(Format::q4_0, Format::q4_1, Format::q8_0),
                         [](const auto& format) { return format_name(format.param); });

TEST(Blocks, OtherFormatsAreRefusedByName) {
  const auto refused = [](const auto& load) -> std::string {
    try {
      load();
      return "not refused";
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  const std::vector<std::byte> data(210);
  const WeightView k{data, {1, 256}, Format::q6_k, nullptr, "blk.w"};
  EXPECT_EQ(dequantize_blocks(k).shape(), (mx::Shape{1, 256}));
  EXPECT_EQ(refused([&] { affine_from_blocks(k); }), "[load] blk.w: q6_k has no affine form");
  const WeightView integers{data, {1, 105}, Format::i16, nullptr, "blk.i"};
  EXPECT_NE(refused([&] { dequantize_blocks(integers); }).find("blk.i"), std::string::npos);
}

TEST(Kernels, NamesAreChecked) {
  EXPECT_STREQ((*make_kernels({}))->name(), "tenon");
  EXPECT_STREQ((*make_kernels({.dtype = mx::bfloat16}))->name(), "mlx");
  EXPECT_EQ(make_kernels({.name = "tenon", .dtype = mx::bfloat16}).error().code, Code::unsupported);
  EXPECT_EQ(make_kernels({.name = "fast"}).error().code, Code::invalid);
  EXPECT_EQ(*parse_dtype("bf16"), mx::bfloat16);
  EXPECT_FALSE(parse_dtype("int7").ok());
}

}  // namespace
}  // namespace tenon::ops

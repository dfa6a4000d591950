// Every stored format, packed and read back, against its definition (test_sources.h).
#include "ops/kernels/cpu/packed.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdio>
#include <thread>

#include "ops/kernels/cpu/test_sources.h"

namespace tenon::cpu {
namespace {

// From the last job to the first, by two threads: jobs may come in any order.
void backwards(int n, const std::function<void(int)>& work) {
  const auto half = [&](int first) {
    for (int i = n - 1 - first; i >= 0; i -= 2) work(i);
  };
  std::thread other(half, 1);
  half(0);
  other.join();
}

std::shared_ptr<const PackedMatrix> packed(const LinearSource& source) {
  auto m = pack(source, backwards);
  EXPECT_TRUE(m.ok()) << (m.ok() ? "" : m.error().message);
  return m.ok() ? *m : nullptr;
}

std::vector<float> row_of(const PackedMatrix& m, int row) {
  std::vector<float> values(m.in);
  m.unpack_row(row, values.data());
  return values;
}

// Packing rounds nothing, and unpacking rounds once.
void expect_packed(const Stored& s) {
  const auto m = packed(s.source);
  ASSERT_NE(m, nullptr) << s.name;
  ASSERT_EQ(m->out, s.out()) << s.name;
  ASSERT_EQ(m->in, s.in()) << s.name;
  int wrong = 0;
  for (int row = 0; row < m->out; ++row) {
    const auto values = row_of(*m, row);
    for (int k = 0; k < m->in; ++k)
      wrong += values[k] != static_cast<float>(s.values[static_cast<size_t>(row) * m->in + k]);
  }
  EXPECT_EQ(wrong, 0) << s.name << " " << m->out << " x " << m->in;
  // Outputs past the last stay zero: kernels compute them.
  for (int row = m->out; row < m->num_tiles() * kTileOutputs; ++row)
    for (float value : row_of(*m, row)) ASSERT_EQ(value, 0.0f) << s.name;
}

TEST(Packed, EveryFormatAsDefined) {
  Rng rng(1);
  for (Scales scales : {Scales::tame, Scales::wild})
    for (int out : {1, 16, 37})
      for (int units : {1, 3})
        for (const Stored& s : every_format(out, units, scales, rng)) expect_packed(s);
}

TEST(Packed, ManyTilesInManyJobs) {
  Rng rng(2);
  expect_packed(stored_blocks(block_formats().front(), 1100, 150, Scales::wild, rng));
}

TEST(Packed, PagesOfAFileAreReadAgain) {
  Rng rng(3);
  Stored s = stored_blocks(block_formats().back(), 600, 40, Scales::wild, rng);
  std::FILE* file = std::tmpfile();
  const std::span<const std::byte> bytes = s.source.weight.bytes;
  ASSERT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fflush(file);
  void* base = mmap(nullptr, bytes.size(), PROT_READ, MAP_PRIVATE, fileno(file), 0);
  ASSERT_NE(base, MAP_FAILED);
  s.source.weight.bytes = {static_cast<const std::byte*>(base), bytes.size()};
  s.source.weight.from_file = true;
  for (int again = 0; again < 2; ++again) expect_packed(s);
  munmap(base, bytes.size());
  std::fclose(file);
}

TEST(Packed, RowsAsGgmlAndMlxRoundThem) {
  Rng rng(4);
  for (const Stored& s : every_format(5, 2, Scales::tame, rng)) {
    const auto reader = group_reader(s.source);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    std::vector<float> values(reader->in);
    for (int row = 0; row < 5; ++row) {
      dequantize_row(*reader, row, values.data());
      for (int k = 0; k < s.in(); ++k)  // two roundings of values below 4096
        ASSERT_NEAR(values[k], s.values[static_cast<size_t>(row) * s.in() + k], 0x1p-12) << s.name;
    }
  }
}

TEST(Packed, NanAndInfinityPassThrough) {
  Rng rng(5);
  for (const BlockFormat& f : block_formats())
    for (uint16_t special : {0x7E00, 0x7C00}) {
      const Stored s = stored_blocks(f, 2, 1, Scales::tame, rng);
      const auto old = s.source.weight.bytes;
      Bytes bytes(reinterpret_cast<const uint8_t*>(old.data()),
                  reinterpret_cast<const uint8_t*>(old.data() + old.size()));
      std::memcpy(&bytes[f.halves[0]], &special, 2);
      LinearSource source;
      source.weight = make_view(bytes, s.source.weight.shape, f.format);
      const auto m = packed(source);
      int finite = 0;  // a code of zero times infinity is NaN too
      for (float value : row_of(*m, 0)) finite += std::isfinite(value);
      EXPECT_EQ(finite, 0) << s.name;
      for (float value : row_of(*m, 1)) ASSERT_TRUE(std::isfinite(value)) << s.name;
    }
}

TEST(Packed, NanCodesOfScalesAndWeights) {
  for (QuantMode mode : {QuantMode::mxfp4, QuantMode::mxfp8, QuantMode::nvfp4}) {
    Rng rng(6);
    Stored s = stored_mode(mode, 1, 4, Scales::tame, rng);
    Bytes scales(4, 100);
    scales[1] = mode == QuantMode::nvfp4 ? 0xFF : 255;
    s.source.scales[0] = make_view(scales, {1, 4}, Format::u8);
    if (mode == QuantMode::mxfp8) {  // a weight of NaN makes NaN of its group
      Bytes words = random_bytes(128, rng);
      for (uint8_t& code : words) code &= 0x3F;
      words[70] = 0x7F;
      s.source.weight = make_view(words, {1, 32}, Format::u32);
    }
    const auto values = row_of(*packed(s.source), 0);
    for (int k = 0; k < s.in(); ++k) {
      const int group = k / s.source.group_size;
      EXPECT_EQ(std::isnan(values[k]), group == 1 || (group == 2 && mode == QuantMode::mxfp8));
    }
  }
}

TEST(Packed, BiasAndVectors) {
  Rng rng(7);
  Stored s = stored_dense(Format::bf16, 20, 70, Scales::tame, rng);
  const Stored bias = stored_dense(Format::f16, 1, 20, Scales::tame, rng);
  s.source.bias = {bias.source.weight};
  s.source.bias[0].shape = {20};
  const auto m = packed(s.source);
  ASSERT_EQ(m->bias.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(m->bias[i], static_cast<float>(bias.values[i]));
  EXPECT_EQ(m->bytes(), 2 * m->tile_bytes + 20 * sizeof(float));
  EXPECT_EQ(read_floats(make_view(Bytes(8), {4}, Format::i16)).error().code, Code::unsupported);
  EXPECT_EQ(read_floats(make_view(Bytes(8), {3}, Format::f16)).error().code, Code::corrupt);
}

struct Bad {
  const char* what;
  std::function<void(LinearSource&)> change;
  Code code;
  const char* message;
};

TEST(Packed, BadSourcesAreNamed) {
  const auto scales = [](std::vector<int64_t> shape, Format format) {
    return make_view(Bytes(32), std::move(shape), format, "w.scales");
  };
  const Bad table[] = {
      {"vector", [](auto& s) { s.weight.shape = {32}; }, Code::corrupt, "w.weight: not a matrix"},
      {"empty", [](auto& s) { s.weight.shape = {0, 8}; }, Code::corrupt, "w.weight: not a matrix"},
      {"huge", [](auto& s) { s.weight.shape = {1ll << 33, 8}; }, Code::too_large, "w.weight"},
      {"cut", [](auto& s) { s.weight.bytes = s.weight.bytes.first(60); }, Code::corrupt, "[2, 8]"},
      {"long", [](auto& s) { s.weight = make_view(Bytes(65), {2, 8}, Format::u32); }, Code::corrupt,
       "[2, 8]"},
      {"words", [](auto& s) { s.weight.format = Format::i32; }, Code::unsupported, "i32"},
      {"bits", [](auto& s) { s.bits = 7; }, Code::unsupported, "affine codes of 7 bits"},
      {"group", [](auto& s) { s.group_size = 16; }, Code::unsupported, "in groups of 16"},
      {"row", [](auto& s) { s.group_size = 128; }, Code::corrupt, "whole groups of 128"},
      {"mode", [](auto& s) { s.mode = QuantMode::nvfp4; }, Code::unsupported, "nvfp4"},
      {"no scales", [](auto& s) { s.scales.clear(); }, Code::corrupt, "need scales and biases"},
      {"biases", [](auto& s) { s.mode = QuantMode::mxfp4; }, Code::corrupt, "scales and no biases"},
      {"f64", [&](auto& s) { s.scales[0] = scales({2, 2}, Format::f64); }, Code::unsupported,
       "w.scales: the CPU kernels do not read f64"},
      {"f16", [&](auto& s) { s.biases[0] = scales({2, 2}, Format::f16); }, Code::unsupported,
       "f16"},
      {"shape", [&](auto& s) { s.scales[0] = scales({2, 4}, Format::f32); }, Code::corrupt,
       "[2, 2]"},
      {"bias", [&](auto& s) { s.bias = {scales({8}, Format::f32)}; }, Code::corrupt, "2 outputs"},
      {"u32", [](auto& s) { s.bits = 0; }, Code::unsupported, "do not read u32"},
  };
  Rng rng(8);
  const Stored good = stored_affine(4, 32, Format::f32, 2, 2, rng);
  ASSERT_TRUE(group_reader(good.source).ok());
  for (const Bad& bad : table) {
    LinearSource source = good.source;
    bad.change(source);
    const auto reader = group_reader(source);
    ASSERT_FALSE(reader.ok()) << bad.what;
    EXPECT_STREQ(code_name(reader.error().code), code_name(bad.code)) << bad.what;
    EXPECT_NE(reader.error().message.find(bad.message), std::string::npos)
        << bad.what << ": " << reader.error().message;
  }
}

}  // namespace
}  // namespace tenon::cpu

// Random stored matrices and what they mean, straight from the definitions of their formats, for
// the tests of this room. Header only. Thread: one.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/kernels/cpu/packed.h"
#include "ops/kernels/cpu/test_blocks.h"

namespace tenon::cpu {

enum class Scales { tame, wild };  // wild: any finite value that the scale's type has

struct Stored {
  std::string name;
  LinearSource source;
  std::vector<double> values;  // [out, in]
  int out() const { return static_cast<int>(source.weight.shape[0]); }
  int in() const { return static_cast<int>(values.size() / source.weight.shape[0]); }
};

using Rng = std::mt19937;
using Bytes = std::vector<uint8_t>;

inline WeightView make_view(Bytes bytes, std::vector<int64_t> shape, Format format,
                            std::string name = "w.weight") {
  auto keep = std::make_shared<Bytes>(std::move(bytes));
  const std::span<const std::byte> all(reinterpret_cast<const std::byte*>(keep->data()),
                                       keep->size());
  return {all, std::move(shape), format, keep, std::move(name)};
}

inline Bytes random_bytes(size_t count, Rng& rng) {
  Bytes bytes(count);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  return bytes;
}

inline void put_half(uint8_t* at, Scales scales, Rng& rng) {
  Half h = static_cast<Half>((0.5f + static_cast<float>(rng() % 64) / 64) / 256);
  while (scales == Scales::wild) {
    const auto bits = static_cast<uint16_t>(rng());
    std::memcpy(&h, &bits, 2);
    if (std::isfinite(static_cast<float>(h))) break;
  }
  std::memcpy(at, &h, 2);
}

inline Stored stored_blocks(const BlockFormat& f, int out, int num_blocks, Scales scales,
                            Rng& rng) {
  const FormatBlock block = format_block(f.format);
  const int in = static_cast<int>(block.elements) * num_blocks;
  Bytes bytes = random_bytes(static_cast<size_t>(out) * num_blocks * block.bytes, rng);
  Stored s{format_name(f.format), {}, std::vector<double>(static_cast<size_t>(out) * in)};
  double* y = s.values.data();
  for (size_t at = 0; at < bytes.size(); at += block.bytes, y += block.elements) {
    for (int offset : f.halves) put_half(&bytes[at + offset], scales, rng);
    f.decode(&bytes[at], y);
  }
  s.source.weight = make_view(std::move(bytes), {out, in}, f.format);
  return s;
}

// A dense matrix of random bits that are finite floats; tame: in [2^-7, 2^-5).
inline Stored stored_dense(Format format, int out, int in, Scales scales, Rng& rng) {
  const int width = static_cast<int>(format_block(format).bytes);
  Bytes bytes = random_bytes(static_cast<size_t>(out) * in * width, rng);
  Stored s{format_name(format), {}, {}};
  for (size_t at = 0; at < bytes.size(); at += width) {
    uint32_t bits = 0;  // as float32, or in its upper half as bfloat16
    std::memcpy(&bits, &bytes[at], width);
    if (format == Format::f16) {
      put_half(&bytes[at], scales, rng);
      s.values.push_back(half_at(&bytes[at]));
      continue;
    }
    bits <<= 32 - 8 * width;
    if (scales == Scales::tame) bits = (bits & 0x80FFFFFF) | 0x3C000000;
    if ((bits >> 23 & 255) == 255) bits ^= 0x40000000;
    const uint32_t kept = bits >> (32 - 8 * width);
    std::memcpy(&bytes[at], &kept, width);
    s.values.push_back(static_cast<double>(bytes_as<float>(reinterpret_cast<uint8_t*>(&bits))));
  }
  s.source.weight = make_view(std::move(bytes), {out, in}, format);
  return s;
}

// Code `k` of a stream of `bits` each, lowest first.
inline int code_at(const uint8_t* stream, int64_t k, int bits) {
  int code = 0;
  for (int i = 0; i < bits; ++i) {
    const int64_t bit = k * bits + i;
    code |= (stream[bit / 8] >> (bit % 8) & 1) << i;
  }
  return code;
}

inline Stored stored_affine(int bits, int group, Format format, int out, int num_groups, Rng& rng) {
  const int in = group * num_groups;
  const Bytes words = random_bytes(static_cast<size_t>(out) * in * bits / 8, rng);
  Stored scales = stored_dense(format, out, num_groups, Scales::tame, rng);
  Stored biases = stored_dense(format, out, num_groups, Scales::tame, rng);
  Stored s{
      fmt::format("affine {} bits, groups of {} in {}", bits, group, format_name(format)), {}, {}};
  for (int64_t k = 0; k < int64_t{out} * in; ++k)
    s.values.push_back(scales.values[k / group] * code_at(words.data(), k, bits) +
                       biases.values[k / group]);
  s.source = {make_view(words, {out, in * bits / 32}, Format::u32),
              {scales.source.weight},
              {biases.source.weight},
              {},
              bits,
              group};
  return s;
}

// e<exponent_bits>m<mantissa_bits>, the top bit its sign.
inline double small_float(int code, int exponent_bits, int mantissa_bits) {
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return code >> (exponent_bits + mantissa_bits) ? -size : size;
}

inline Stored stored_mode(QuantMode mode, int out, int num_groups, Scales scales, Rng& rng) {
  const bool eight = mode == QuantMode::mxfp8, nv = mode == QuantMode::nvfp4;
  const int bits = eight ? 8 : 4, group = nv ? 16 : 32, in = group * num_groups;
  Bytes words = random_bytes(static_cast<size_t>(out) * in * bits / 8, rng);
  Bytes codes = random_bytes(static_cast<size_t>(out) * num_groups, rng);
  if (eight)
    for (uint8_t& code : words) code = (code & 0x7F) == 0x7F ? 0 : code;  // NaN
  for (uint8_t& code : codes) {
    if (scales == Scales::tame) code = static_cast<uint8_t>(nv ? code % 32 : 117 + code % 5);
    if (nv ? (code & 0x7F) == 0x7F : code == 255) code = 0;
  }
  Stored s{quant_mode_name(mode), {}, {}};
  for (int64_t k = 0; k < int64_t{out} * in; ++k) {
    const int scale = codes[k / group], code = code_at(words.data(), k, bits);
    s.values.push_back((eight ? small_float(code, 4, 3) : small_float(code, 2, 1)) *
                       (nv ? small_float(scale, 4, 3) : std::ldexp(1.0, scale - 127)));
  }
  s.source = {make_view(words, {out, in * bits / 32}, Format::u32),
              {make_view(codes, {out, num_groups}, Format::u8, "w.scales")},
              {},
              {},
              bits,
              group,
              mode};
  return s;
}

// A matrix of `out` rows in every format that there is, `units` of its blocks or groups wide.
inline std::vector<Stored> every_format(int out, int units, Scales scales, Rng& rng) {
  std::vector<Stored> all;
  for (const BlockFormat& f : block_formats())
    all.push_back(stored_blocks(f, out, units, scales, rng));
  for (Format f : {Format::f32, Format::f16, Format::bf16})
    all.push_back(stored_dense(f, out, 50 * units, scales, rng));
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64, 128})
      for (Format f : {Format::f32, Format::f16, Format::bf16})
        all.push_back(stored_affine(bits, group, f, out, units, rng));
  for (QuantMode mode : {QuantMode::mxfp4, QuantMode::mxfp8})
    all.push_back(stored_mode(mode, out, units, scales, rng));
  all.push_back(stored_mode(QuantMode::nvfp4, out, 2 * units, scales, rng));
  return all;
}

}  // namespace tenon::cpu

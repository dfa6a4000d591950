#include "ops/block_formats.h"

#include <cstring>
#include <stdexcept>

#include "ops/kernels/cpu/cpu.h"

namespace tenon::ops {

namespace {

struct Affine {
  int bits;
  int header_bytes;  // fp16 scale, and fp16 minimum where `has_min`
  bool has_min;
  float zero;  // bias = -zero * scale without a minimum
};

std::optional<Affine> affine_of(Format f) {
  switch (f) {
    case Format::q4_0: return Affine{4, 2, false, 8};
    case Format::q4_1: return Affine{4, 4, true, 0};
    case Format::q8_0: return Affine{8, 2, false, 128};
    default: return std::nullopt;
  }
}

mx::float16_t load_half(const std::byte* at) {
  mx::float16_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// GGUF keeps element j and j + 16 in one byte (low and high nibble); MLX packs in element order.
void repack_nibbles(const std::byte* block, uint8_t* out) {
  for (int j = 0; j < kBlockGroup; j += 2) {
    const auto nibble = [&](int e) {
      const auto byte = std::to_integer<uint8_t>(block[e % 16]);
      return static_cast<uint8_t>(e < 16 ? byte & 15 : byte >> 4);
    };
    out[j / 2] = static_cast<uint8_t>(nibble(j) | nibble(j + 1) << 4);
  }
}

// Signed bytes to unsigned with zero point 128.
void repack_bytes(const std::byte* block, uint8_t* out) {
  for (int j = 0; j < kBlockGroup; ++j) out[j] = std::to_integer<uint8_t>(block[j]) ^ 0x80;
}

}  // namespace

bool is_affine_block(Format f) { return affine_of(f).has_value(); }

int affine_block_bits(Format f) {
  const auto affine = affine_of(f);
  return affine ? affine->bits : 0;
}

AffineTriple affine_from_blocks(const WeightView& view) {
  const auto affine = affine_of(view.format);
  if (!affine || view.shape.size() != 2)
    throw std::runtime_error(
        fmt::format("[load] {}: {} has no affine form", view.name, format_name(view.format)));
  const int rows = static_cast<int>(view.shape[0]);
  const int groups = static_cast<int>(view.shape[1] / kBlockGroup);
  const size_t num_blocks = static_cast<size_t>(rows) * groups;
  const size_t packed_bytes = kBlockGroup * affine->bits / 8;
  auto weight = mx::allocator::malloc(num_blocks * packed_bytes);
  auto scales = mx::allocator::malloc(num_blocks * sizeof(mx::float16_t));
  auto biases = mx::allocator::malloc(num_blocks * sizeof(mx::float16_t));
  auto* weight_out = static_cast<uint8_t*>(weight.buffer().raw_ptr());
  auto* scales_out = static_cast<mx::float16_t*>(scales.buffer().raw_ptr());
  auto* biases_out = static_cast<mx::float16_t*>(biases.buffer().raw_ptr());
  const std::byte* block = view.bytes.data();
  const int64_t block_bytes = format_block(view.format).bytes;
  for (size_t b = 0; b < num_blocks; ++b, block += block_bytes) {
    scales_out[b] = load_half(block);
    biases_out[b] = affine->has_min
                        ? load_half(block + 2)
                        : mx::float16_t(-affine->zero * static_cast<float>(scales_out[b]));
    uint8_t* out = weight_out + b * packed_bytes;
    affine->bits == 4 ? repack_nibbles(block + affine->header_bytes, out)
                      : repack_bytes(block + affine->header_bytes, out);
  }
  const mx::Shape group_shape{rows, groups};
  return {
      mx::array(std::move(weight), {rows, static_cast<int>(groups * packed_bytes / 4)}, mx::uint32),
      mx::array(std::move(scales), group_shape, mx::float16),
      mx::array(std::move(biases), group_shape, mx::float16), affine->bits};
}

mx::array dequantize_blocks(const WeightView& view) {
  const auto reader = cpu::group_reader({.weight = view});
  if (!reader.ok()) throw std::runtime_error("[load] " + reader.error().message);
  const auto rows = static_cast<int>(reader->out), cols = static_cast<int>(reader->in);
  auto data = mx::allocator::malloc(sizeof(float) * rows * cols);
  auto* values = static_cast<float*>(data.buffer().raw_ptr());
  for (int64_t row = 0; row < rows; ++row) cpu::dequantize_row(*reader, row, values + row * cols);
  return mx::array(std::move(data), {rows, cols}, mx::float32);
}

}  // namespace tenon::ops

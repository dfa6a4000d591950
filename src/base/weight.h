// WeightView: bytes of one stored tensor, straight from a mapped file.
// Owner: `keep` holds the mapping; a view stays valid as long as any copy of it lives.
// Thread: immutable, any. Byte order: little-endian, row-major. No MLX.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon {

// How elements are stored. Dense formats have one element per item; block formats (q*) pack
// `format_block(f).elements` consecutive elements of the last dimension into `.bytes` bytes, as
// GGUF defines them.
enum class Format {
  f32,
  f16,
  bf16,
  f64,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
};
const char* format_name(Format f);  // "f32", "q4_1", ...
struct FormatBlock {
  int64_t elements;
  int64_t bytes;
};
FormatBlock format_block(Format f);

struct WeightView {
  std::span<const std::byte> bytes;
  std::vector<int64_t> shape;  // outermost first; block formats: in elements
  Format format = Format::f32;
  std::shared_ptr<const void> keep;
  std::string name;  // for messages
  bool from_file = false;  // a read-only mapping: its pages may be dropped and read again
};

// How MLX quantizes a matrix: affine with scales and biases; the others with scales of their own
// (u8) and no biases.
enum class QuantMode { affine, mxfp4, mxfp8, nvfp4 };
const char* quant_mode_name(QuantMode mode);  // "affine", "mxfp4", ...

// A matrix [out, in] as a checkpoint stores it: dense or block-packed alone, or quantized by MLX in
// u32 words with scales (and affine biases) [out, in/group]. bits == 0: not quantized by MLX.
struct LinearSource {
  WeightView weight;
  std::vector<WeightView> scales;  // 0 or 1
  std::vector<WeightView> biases;  // 0 or 1; affine zero points
  std::vector<WeightView> bias;  // 0 or 1; [out], added to the product
  int bits = 0;
  int group_size = 0;
  QuantMode mode = QuantMode::affine;
};

// Outputs [begin, end) of a matrix, a view of the same bytes.
LinearSource rows_of(const LinearSource& matrix, int64_t begin, int64_t end);
// Entries [begin, end) of a tensor's first dimension, a view of the same bytes.
WeightView rows_of(const WeightView& view, int64_t begin, int64_t end);

}  // namespace tenon

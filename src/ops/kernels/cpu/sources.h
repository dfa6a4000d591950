// The readers behind group_reader (packed.h), one for each place a format comes from. Internal to
// packing. Sizes are checked before a reader exists, so that reading cannot fail.
#pragma once
#include "ops/kernels/cpu/packed.h"

namespace tenon::cpu {

struct DenseFormat {
  CodeType code;
  ScaleType scale;  // the same type, of scales
  int bytes;
};
const DenseFormat* dense_format(Format format);  // f32, f16, bf16; null for others

// GGUF blocks (q*). `read` gets one of the groups of a block.
struct BlockReader {
  Packing packing;
  void (*read)(const std::byte* block, int group, StoredGroup& out);
};
const BlockReader* block_reader(Format format);  // null for others

// MLX's triples: source.bits > 0. Errors: unsupported, corrupt.
Result<GroupReader> mlx_reader(const LinearSource& source);

Error no_reader(const WeightView& view);
// A view is [rows, cols] and has exactly the bytes for it. Errors: corrupt.
Status check_matrix(const WeightView& view, int64_t rows, int64_t cols);

}  // namespace tenon::cpu

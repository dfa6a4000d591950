// GGUF block formats as MLX affine triples. Q4_0, Q4_1 and Q8_0 are affine already: w = q*scale +
// bias per 32 elements, so they are repacked (not requantized) into MLX's layout, as MLX's own
// reader does. Source: block layouts of
// https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#pragma once
#include "ops/ops.h"

namespace tenon::ops {

struct AffineTriple {
  mx::array weight;  // uint32 [out, in * bits / 32]
  mx::array scales;  // float16 [out, in / 32]
  mx::array biases;  // float16 [out, in / 32]
  int bits;
};

bool is_affine_block(Format f);
// Throws "[load] ..." for a format without an affine form.
AffineTriple affine_from_blocks(const WeightView& view);
// float32 of the view's shape.
mx::array dequantize_blocks(const WeightView& view);

constexpr int kBlockGroup = 32;

}  // namespace tenon::ops

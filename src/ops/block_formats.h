// GGUF block formats for MLX's stock ops. Q4_0, Q4_1 and Q8_0 are affine already: w = q*scale +
// bias per 32 elements, so they are repacked (not requantized) into MLX's layout, as MLX's own
// reader does. The others become dense float32. Source: block layouts of
// https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
#pragma once
#include "ops/ops.h"

namespace tenon::ops {

// float32 of the view's shape, as ggml dequantizes it. Throws "[load] ..." for other formats.
mx::array dequantize_blocks(const WeightView& view);

constexpr int kBlockGroup = 32;

}  // namespace tenon::ops

// A config's RoPE description to the numbers a kernel needs.
// Source: mlx-lm models/rope_utils.py; frequencies are computed with MLX ops in its order, for
// equal bits.
#pragma once
#include "base/json.h"
#include "ops/ops.h"

namespace tenon::graph {

struct RopeRequest {
  int dims = 0;
  double base = 10000;
  bool traditional = false;
  Json scaling;               // rope_scaling or rope_parameters; null: plain
  int max_positions = 2048;   // max_position_embeddings
  std::vector<float> factors;  // [dims / 2] of wavelengths, as Llama 3 GGUF files store them
};
// Errors: unsupported (type), invalid (missing or odd field), naming the field.
Result<ops::Rope> make_rope(const RopeRequest& request);

}  // namespace tenon::graph

// From a config to a DecoderSpec: what each model type means by its fields and their absence.
// Source: the ModelArgs dataclass of each type in mlx-lm 0.32.2. Errors: invalid, unsupported,
// naming the field; what a config asks for and the graph would compute otherwise is refused.
#pragma once
#include <string_view>

#include "graph/decoder.h"

namespace tenon::graph {

// config.json, or its text_config.
const Json& text_config(const Json& config);

// Sizes, norms, biases and RoPE as a llama config states them; the start of every description.
Result<DecoderSpec> describe_llama(const Json& config);
// RoPE by rope_theta and rope_scaling, or by both in rope_parameters as newer files spell them.
Result<RopeRequest> describe_rope(const Json& config, int dims, double default_base,
                                  bool default_traditional = false);
// The first part of a head of which RoPE turns every pair. Errors: invalid, outside (0, 1].
Result<int> rotary_dims(const Json& config, int head_dim, double default_part);
// As the descriptor of `model_type` (after remap) says. Errors also: unsupported (no descriptor).
Result<DecoderSpec> describe(std::string_view model_type, const Json& config);

}  // namespace tenon::graph

// The `quantization` object of a config as MLX writes it: {bits, group_size, mode} plus one entry
// per module path; false means that the module is not quantized. A mode that is left out is affine,
// in a module's object too, as mlx-lm reads it; affine bits and group_size that a module leaves out
// are the object's. The other modes fix both, and may leave both out.
// Pure. Thread: any. Errors name the source and the key: unsupported (other producers, modes and
// values), corrupt (missing keys, wrong types).
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace tenon::checkpoint {

// The object of this config, or null. `quantization` wins over `quantization_config`.
Result<Json> find_quantization(const Json& config, std::string_view source);

// What `quantization` says about one module.
Result<Scheme> scheme_of(const Json& quantization, std::string_view path, std::string_view source);

}  // namespace tenon::checkpoint

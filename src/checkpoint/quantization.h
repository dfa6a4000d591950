// The `quantization` object of a config as MLX writes it: {bits, group_size, mode} plus one entry
// per module path: an object inherits what it leaves out, false means the module is not quantized.
// Pure. Thread: any. Errors name the source and the key: unsupported (other producers and modes),
// corrupt (wrong types and values).
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tenon::checkpoint {

struct Scheme {
  bool quantized = true;
  int bits = 0;        // 2, 3, 4, 5, 6, 8
  int group_size = 0;  // 32, 64, 128
};

// The object of this config, or null. `quantization` wins over `quantization_config`.
Result<Json> find_quantization(const Json& config, std::string_view source);

// What `quantization` says about one module.
Result<Scheme> scheme_of(const Json& quantization, std::string_view path, std::string_view source);

}  // namespace tenon::checkpoint

// Writes a safetensors file of float32 and int32 tensors: 8 bytes of header length
// (little-endian), a JSON header padded with spaces to a multiple of 8, then the data in the
// order given. Source: the safetensors format description. The file appears whole or not at all
// (written beside, then renamed). Spans must outlive write_safetensors().
#pragma once
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tenon::cli {

struct OutTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::variant<std::span<const float>, std::span<const int32_t>> data;
};

// Errors: unavailable, naming the path and the system's reason.
Status write_safetensors(const std::string& path, const std::vector<OutTensor>& tensors,
                         const std::map<std::string, std::string>& metadata);

}  // namespace tenon::cli

// One safetensors file: u64 little-endian header length, JSON header, tensor data.
// Works on bytes already in memory; only the header is read. Everything the header claims is
// checked against the file before anything is allocated by it. Views point into `file` and share
// `keep`. Their data is only as aligned as the file makes it. Thread: any. Errors: corrupt (cut,
// overlapping, misshapen, listed twice), unsupported (dtype), naming `source` and the tensor.
// Format: https://github.com/huggingface/safetensors#format
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/weight.h"

namespace tenon::checkpoint {

constexpr uint64_t kSafetensorsHeaderMax = 100'000'000;  // the reference implementation's limit

// "F32", "BF16", ...; dense formats only.
std::string_view safetensors_dtype(Format format);

Result<std::vector<WeightView>> parse_safetensors(std::span<const std::byte> file,
                                                  std::shared_ptr<const void> keep,
                                                  const std::string& source);

}  // namespace tenon::checkpoint

// What becomes of each tensor in convert(): the plan, made from headers alone, and the arithmetic
// of one step of it. Thread: the caller's; compute() runs on MLX's default device. Errors: invalid
// (an override that matches nothing or whose groups do not fit), those of reading a `quantization`
// object; compute() throws what MLX and ops throw.
#pragma once
#include <mlx/mlx.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_writer.h"

namespace tenon::checkpoint {

// One module's matrix with its scales, or one other tensor.
struct Job {
  std::string path;  // of the module: the tensor's name without ".weight"
  WeightView weight;
  std::optional<WeightView> scales, biases;  // of a matrix stored the MLX way
  Scheme stored;  // affine GGUF blocks have one too; other blocks and floats are not quantized
  Scheme wanted;
  Format dtype = Format::f32;  // of the floats written
  int64_t row_len = 0;         // elements
  std::vector<TensorHeader> out;

  uint64_t source_bytes() const;
  uint64_t elements() const;
};

struct ConversionPlan {
  std::vector<Job> jobs;  // in the order of their names
  Json quantization;      // the new config's object, null when nothing is quantized
};
// `quantization`: the source's own object or null; `source` for messages.
Result<ConversionPlan> plan_conversion(const Weights& weights, const Json& quantization,
                                       const ConvertOptions& options, const std::string& source);

// Evaluated, contiguous, one for each of job.out.
std::vector<mlx::core::array> compute(const Job& job);

// Shell patterns of * and ?, the whole of `text`. Linear in text x pattern.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace tenon::checkpoint

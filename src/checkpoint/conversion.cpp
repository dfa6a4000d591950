#include "checkpoint/conversion.h"

#include "base/check.h"
#include "ops/ops.h"

namespace tenon::checkpoint {

namespace {

namespace mx = mlx::core;

mx::Dtype dtype_of(Format format) {
  const auto dtype = ops::parse_dtype(format_name(format));
  CHECK(dtype.ok(), "{} is no dtype of activations", format_name(format));
  return *dtype;
}

mx::array as(const mx::array& array, Format format) { return mx::astype(array, dtype_of(format)); }

// Whatever its rank, a matrix is rows.
WeightView as_rows(const WeightView& view) {
  WeightView rows = view;
  int64_t count = 1;
  for (size_t i = 0; i + 1 < view.shape.size(); ++i) count *= view.shape[i];
  rows.shape = {count, view.shape.back()};
  return rows;
}

mx::array shaped(const mx::array& array, const TensorHeader& header) {
  mx::Shape shape;
  for (int64_t dim : header.shape) shape.push_back(static_cast<mx::ShapeElem>(dim));
  return mx::reshape(array, std::move(shape));
}

// The values, decoded in float32 and rounded once to job.dtype.
mx::array dense(const Job& job) {
  if (!job.scales) {
    if (job.weight.format == job.dtype) return ops::stored_array(job.weight);
    const bool blocks = format_block(job.weight.format).elements > 1;
    return ops::dense_array(blocks ? as_rows(job.weight) : job.weight, dtype_of(job.dtype));
  }
  mx::array scales = ops::stored_array(as_rows(*job.scales));
  std::optional<mx::array> biases;
  if (job.biases) {
    scales = mx::astype(scales, mx::float32);
    biases = ops::dense_array(as_rows(*job.biases), mx::float32);
  }
  const mx::array values =
      mx::dequantize(ops::stored_array(as_rows(job.weight)), scales, biases, job.stored.group_size,
                     job.stored.bits, quant_mode_name(job.stored.mode), std::nullopt, mx::float32);
  return as(values, job.dtype);
}

// What is stored the wanted way already keeps its bits; only scales change their type.
std::vector<mx::array> keep(const Job& job) {
  if (!job.scales) {
    const ops::AffineTriple t = ops::affine_from_blocks(as_rows(job.weight));
    return {t.weight, as(t.scales, job.dtype), as(t.biases, job.dtype)};
  }
  const mx::array weight = ops::stored_array(job.weight), scales = ops::stored_array(*job.scales);
  if (!job.biases) return {weight, scales};
  return {weight, as(scales, job.dtype), as(ops::stored_array(*job.biases), job.dtype)};
}

std::vector<mx::array> make(const Job& job) {
  if (!job.wanted.quantized) return {dense(job)};
  if (job.wanted == job.stored) return keep(job);
  return mx::quantize(dense(job), job.wanted.group_size, job.wanted.bits,
                      quant_mode_name(job.wanted.mode));
}

}  // namespace

std::vector<mx::array> compute(const Job& job) {
  std::vector<mx::array> made = make(job);
  CHECK(made.size() == job.out.size(), "{}: {} arrays for {} tensors", job.path, made.size(),
        job.out.size());
  for (size_t i = 0; i < made.size(); ++i) {
    made[i] = mx::contiguous(shaped(made[i], job.out[i]));
    CHECK(made[i].nbytes() == job.out[i].bytes(), "{}: {} bytes for {}", job.path, made[i].nbytes(),
          job.out[i].name);
  }
  mx::eval(made);
  return made;
}

}  // namespace tenon::checkpoint

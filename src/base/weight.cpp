#include "base/weight.h"

#include "base/check.h"

namespace tenon {

namespace {
struct FormatRow {
  Format format;
  const char* name;
  FormatBlock block;
};
// GGUF block layouts: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (ggml-common.h)
constexpr FormatRow kFormats[] = {
    {Format::f32, "f32", {1, 4}},       {Format::f16, "f16", {1, 2}},
    {Format::bf16, "bf16", {1, 2}},     {Format::f64, "f64", {1, 8}},
    {Format::u8, "u8", {1, 1}},         {Format::i8, "i8", {1, 1}},
    {Format::u16, "u16", {1, 2}},       {Format::i16, "i16", {1, 2}},
    {Format::u32, "u32", {1, 4}},       {Format::i32, "i32", {1, 4}},
    {Format::u64, "u64", {1, 8}},       {Format::i64, "i64", {1, 8}},
    {Format::boolean, "bool", {1, 1}},  {Format::q4_0, "q4_0", {32, 18}},
    {Format::q4_1, "q4_1", {32, 20}},   {Format::q5_0, "q5_0", {32, 22}},
    {Format::q5_1, "q5_1", {32, 24}},   {Format::q8_0, "q8_0", {32, 34}},
    {Format::q2_k, "q2_k", {256, 84}},  {Format::q3_k, "q3_k", {256, 110}},
    {Format::q4_k, "q4_k", {256, 144}}, {Format::q5_k, "q5_k", {256, 176}},
    {Format::q6_k, "q6_k", {256, 210}},
};
const FormatRow& row_of(Format f) {
  for (const FormatRow& row : kFormats)
    if (row.format == f) return row;
  return kFormats[0];
}
}  // namespace

const char* format_name(Format f) { return row_of(f).name; }
FormatBlock format_block(Format f) { return row_of(f).block; }

const char* quant_mode_name(QuantMode mode) {
  switch (mode) {
    case QuantMode::affine: return "affine";
    case QuantMode::mxfp4: return "mxfp4";
    case QuantMode::mxfp8: return "mxfp8";
    case QuantMode::nvfp4: return "nvfp4";
  }
  return "affine";
}

WeightView rows_of(const WeightView& view, int64_t begin, int64_t end) {
  CHECK(!view.shape.empty() && 0 <= begin && begin <= end && end <= view.shape[0],
        "{}: rows {} to {}", view.name, begin, end);
  WeightView part = view;
  const size_t row_bytes = view.shape[0] == 0 ? 0 : view.bytes.size() / view.shape[0];
  part.bytes = view.bytes.subspan(begin * row_bytes, (end - begin) * row_bytes);
  part.shape[0] = end - begin;
  return part;
}

LinearSource rows_of(const LinearSource& matrix, int64_t begin, int64_t end) {
  LinearSource part = matrix;
  part.weight = rows_of(matrix.weight, begin, end);
  for (auto* views : {&part.scales, &part.biases, &part.bias})
    for (WeightView& view : *views) view = rows_of(view, begin, end);
  return part;
}

}  // namespace tenon

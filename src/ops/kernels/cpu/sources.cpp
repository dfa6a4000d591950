// Stored matrices, group by group: exactly the codes, scales and minima that a file holds. Which
// reader, dense floats, and what all readers check. MLX: sources_mlx.cpp; GGUF: sources_gguf.cpp.
#include "ops/kernels/cpu/sources.h"

#include <algorithm>
#include <cstring>

#include "ops/kernels/cpu/half.h"

namespace tenon::cpu {

namespace {

GroupReader dense_reader(const WeightView& view, const DenseFormat& format) {
  GroupReader reader;
  reader.packing = {format.code, format.bytes * 8, kDenseGroup, 0, ScaleType::none, false};
  reader.in = view.shape[1];
  reader.read = [view, in = reader.in, width = format.bytes](int64_t row, int64_t group,
                                                             StoredGroup& out) {
    const int64_t first = group * kDenseGroup;
    const int64_t count = std::min<int64_t>(kDenseGroup, in - first);
    std::memcpy(out.codes, view.bytes.data() + (row * in + first) * width, count * width);
  };
  return reader;
}

GroupReader gguf_reader(const WeightView& view, const BlockReader& blocks) {
  const FormatBlock block = format_block(view.format);
  GroupReader reader;
  reader.packing = blocks.packing;
  reader.in = view.shape[1];
  const int64_t block_groups = block.elements / blocks.packing.group;
  const int64_t row_bytes = reader.in / block.elements * block.bytes;
  reader.read = [view, read = blocks.read, block_groups, row_bytes, block_bytes = block.bytes](
                    int64_t row, int64_t group, StoredGroup& out) {
    const int64_t at = row * row_bytes + group / block_groups * block_bytes;
    read(view.bytes.data() + at, static_cast<int>(group % block_groups), out);
  };
  return reader;
}

Result<GroupReader> any_reader(const LinearSource& source) {
  const WeightView& weight = source.weight;
  if (source.bits > 0) return mlx_reader(source);
  if (const BlockReader* blocks = block_reader(weight.format)) return gguf_reader(weight, *blocks);
  if (const DenseFormat* format = dense_format(weight.format)) return dense_reader(weight, *format);
  return no_reader(weight);
}

}  // namespace

const DenseFormat* dense_format(Format format) {
  static constexpr DenseFormat kF32{CodeType::f32, ScaleType::f32, 4};
  static constexpr DenseFormat kF16{CodeType::f16, ScaleType::f16, 2};
  static constexpr DenseFormat kBf16{CodeType::bf16, ScaleType::bf16, 2};
  switch (format) {
    case Format::f32: return &kF32;
    case Format::f16: return &kF16;
    case Format::bf16: return &kBf16;
    default: return nullptr;
  }
}

Error no_reader(const WeightView& view) {
  return unsupported("tensor {}: the CPU kernels do not read {} here", view.name,
                     format_name(view.format));
}

Status check_matrix(const WeightView& view, int64_t rows, int64_t cols) {
  const FormatBlock block = format_block(view.format);
  const auto row_bytes = static_cast<uint64_t>(cols / block.elements * block.bytes);
  if (view.shape != std::vector<int64_t>{rows, cols} || cols % block.elements != 0 ||
      view.bytes.size() % rows != 0 || view.bytes.size() / rows != row_bytes)
    return corrupt("tensor {}: its shape and bytes are not those of a {} matrix [{}, {}]",
                   view.name, format_name(view.format), rows, cols);
  return {};
}

Result<GroupReader> group_reader(const LinearSource& source) {
  const WeightView& weight = source.weight;
  if (weight.shape.size() != 2 || weight.shape[0] < 1 || weight.shape[1] < 1)
    return corrupt("tensor {}: not a matrix [out, in]", weight.name);
  const int64_t out = weight.shape[0];
  if (std::max(out, weight.shape[1]) > INT32_MAX)
    return too_large("tensor {}: a dimension past 2^31", weight.name);
  TENON_OK(check_matrix(weight, out, weight.shape[1]));
  for (const WeightView& bias : source.bias)
    if (bias.shape != std::vector<int64_t>{out})
      return corrupt("tensor {}: not a bias of {} outputs", bias.name, out);
  TENON_TRY(GroupReader reader, any_reader(source));
  if (reader.in > INT32_MAX) return too_large("tensor {}: a row past 2^31", weight.name);
  reader.out = out;
  return reader;
}

void dequantize_row(const GroupReader& reader, int64_t row, float* values) {
  const Packing& p = reader.packing;
  const size_t width = p.bits / 8;
  for (int64_t first = 0; first < reader.in; first += p.group) {
    StoredGroup s;
    reader.read(row, first / p.group, s);
    const bool nested = p.scale == ScaleType::two_level;
    const float scale = nested ? s.super_scale * static_cast<float>(s.scale_code) : s.scale;
    const float min = nested ? s.super_min * static_cast<float>(s.min_code) : s.min;
    const auto* stored = reinterpret_cast<const std::byte*>(s.codes);
    const int64_t count = std::min<int64_t>(p.group, reader.in - first);
    for (int64_t k = 0; k < count; ++k) {
      const float code = p.is_integer() ? static_cast<float>(code_value(p, s.codes[k]))
                                        : load_code(p.code, stored + k * width);
      const float product = p.scale == ScaleType::none ? code : scale * code;
      values[first + k] = p.has_min ? product + min : product;
    }
  }
}

Result<std::vector<float>> read_floats(const WeightView& view) {
  const DenseFormat* format = dense_format(view.format);
  if (format == nullptr) return no_reader(view);
  std::vector<float> values(view.bytes.size() / format->bytes);
  uint64_t count = 1;
  for (int64_t dim : view.shape) count *= static_cast<uint64_t>(dim);
  if (count != values.size() || view.bytes.size() % format->bytes != 0)
    return corrupt("tensor {}: {} bytes are not those of its shape", view.name, view.bytes.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load_code(format->code, view.bytes.data() + i * format->bytes);
  return values;
}

}  // namespace tenon::cpu

// Stored bytes to arrays.
#include <cstring>
#include <stdexcept>

#include "ops/block_formats.h"
#include "ops/ops.h"

namespace tenon::ops {

namespace {

mx::Shape to_shape(const std::vector<int64_t>& shape) {
  mx::Shape out;
  for (int64_t dim : shape) {
    if (dim > std::numeric_limits<mx::ShapeElem>::max())
      throw std::runtime_error("[load] a dimension is over 2^31");
    out.push_back(static_cast<mx::ShapeElem>(dim));
  }
  return out;
}

std::optional<mx::Dtype> stored_dtype(Format f) {
  switch (f) {
    case Format::f32: return mx::float32;
    case Format::f16: return mx::float16;
    case Format::bf16: return mx::bfloat16;
    case Format::f64: return mx::float64;
    case Format::u8: return mx::uint8;
    case Format::i8: return mx::int8;
    case Format::u16: return mx::uint16;
    case Format::i16: return mx::int16;
    case Format::u32: return mx::uint32;
    case Format::i32: return mx::int32;
    case Format::u64: return mx::uint64;
    case Format::i64: return mx::int64;
    case Format::boolean: return mx::bool_;
    default: return std::nullopt;
  }
}

}  // namespace

mx::array stored_array(const WeightView& view) {
  const auto dtype = stored_dtype(view.format);
  if (!dtype)
    throw std::runtime_error(fmt::format("[load] {}: format {} has no dense array form", view.name,
                                         format_name(view.format)));
  mx::allocator::Data data = mx::allocator::malloc(view.bytes.size());
  // The views come from validated headers, so bytes.size() is shape x itemsize.
  if (!view.bytes.empty())
    std::memcpy(data.buffer().raw_ptr(), view.bytes.data(), view.bytes.size());
  return mx::array(std::move(data), to_shape(view.shape), *dtype);
}

mx::array dense_array(const WeightView& view, mx::Dtype dtype) {
  if (stored_dtype(view.format)) return mx::astype(stored_array(view), dtype);
  return mx::astype(dequantize_blocks(view), dtype);
}

Result<mx::Dtype> parse_dtype(std::string_view name) {
  if (name == "f32" || name == "float32") return mx::float32;
  if (name == "bf16" || name == "bfloat16") return mx::bfloat16;
  if (name == "f16" || name == "float16") return mx::float16;
  return invalid("'{}' is not a dtype; use float32, bfloat16 or float16", name);
}

const char* dtype_name(mx::Dtype dtype) {
  if (dtype == mx::float32) return "float32";
  if (dtype == mx::bfloat16) return "bfloat16";
  if (dtype == mx::float16) return "float16";
  return "other";
}

mx::array scalar_like(float value, const mx::array& x) { return mx::array(value, x.dtype()); }

}  // namespace tenon::ops

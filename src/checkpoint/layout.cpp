#include "checkpoint/layout.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace tenon::checkpoint {

std::string shown(std::string_view name) {
  constexpr size_t kLen = 120;
  std::string out(name.substr(0, kLen));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  // A cut may split a character; step back over its continuation bytes and its first byte.
  if (name.size() > kLen) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();
    out += "...";
  }
  return out.empty() ? "(empty)" : out;
}

std::string shape_text(std::span<const int64_t> shape) {
  constexpr size_t kShown = 8;
  std::string out = "[";
  for (size_t i = 0; i < shape.size() && i < kShown; ++i)
    out += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return out + (shape.size() > kShown ? ", ...]" : "]");
}

std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

std::optional<uint64_t> element_count(std::span<const int64_t> shape) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  uint64_t count = 1;
  for (int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    const auto next = checked_mul(count, static_cast<uint64_t>(dim));
    if (!next || *next > kMax) return std::nullopt;
    count = *next;
  }
  return count;
}

Result<uint64_t> stored_bytes(std::span<const int64_t> shape, Format format, std::string_view file,
                              std::string_view tensor) {
  const FormatBlock block = format_block(format);
  const int64_t row_len = shape.empty() ? 1 : shape.back();
  if (row_len % block.elements != 0)
    return corrupt("{}: tensor {}: rows of {} elements are not whole {} blocks of {}", file,
                   shown(tensor), row_len, format_name(format), block.elements);
  const auto count = element_count(shape);
  const auto bytes = count ? checked_mul(*count / static_cast<uint64_t>(block.elements),
                                         static_cast<uint64_t>(block.bytes))
                           : std::nullopt;
  if (!bytes)
    return corrupt("{}: tensor {}: the size of shape {} overflows", file, shown(tensor),
                   shape_text(shape));
  return *bytes;
}

namespace {

Status check_names(std::span<const WeightView> tensors, std::string_view file) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const WeightView& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return corrupt("{}: tensor {} is listed twice", file, shown(*twin));
}

}  // namespace

Status check_distinct(std::span<const WeightView> tensors, std::string_view file) {
  TENON_OK(check_names(tensors, file));
  std::vector<const WeightView*> order;
  order.reserve(tensors.size());
  for (const WeightView& t : tensors)
    if (!t.bytes.empty()) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const WeightView* a, const WeightView* b) {
    return std::less<>()(a->bytes.data(), b->bytes.data());
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const auto& before = *order[i - 1];
    if (static_cast<size_t>(order[i]->bytes.data() - before.bytes.data()) < before.bytes.size())
      return corrupt("{}: tensors {} and {} overlap", file, shown(before.name),
                     shown(order[i]->name));
  }
  return {};
}

}  // namespace tenon::checkpoint

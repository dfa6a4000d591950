// Typed access to GGUF metadata (declared in gguf.h).
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "checkpoint/gguf.h"
#include "checkpoint/layout.h"

namespace tenon::checkpoint {

namespace {

std::string type_of(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value))
    return fmt::format("an array of {}", gguf_type_name(array->element));
  constexpr const char* kNames[] = {"an unsigned integer", "an integer", "a float", "a double",
                                    "a boolean",           "a string"};
  return kNames[value.index()];
}

Error wrong_type(const GgufFile& file, std::string_view key, std::string_view want,
                 const GgufValue& have) {
  return corrupt("{}: {} must be {}, but is {}", file.source, shown(key), want, type_of(have));
}

// The array under `key` when its elements are among `allowed`.
Result<const GgufArray*> find_array(const GgufFile& file, std::string_view key,
                                    std::initializer_list<GgufType> allowed,
                                    std::string_view want) {
  const GgufValue* value = gguf_find(file, key);
  if (!value) return static_cast<const GgufArray*>(nullptr);
  const auto* array = std::get_if<GgufArray>(value);
  if (array)
    for (GgufType type : allowed)
      if (array->element == type) return array;
  return wrong_type(file, key, want, *value);
}

template <class Stored, class Kept>
std::vector<Kept> unpack(const GgufArray& array) {
  std::vector<Kept> out(array.count);
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, array.bytes.data() + i * sizeof value, sizeof value);
    out[i] = static_cast<Kept>(value);
  }
  return out;
}

double shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

}  // namespace

const GgufValue* gguf_find(const GgufFile& file, std::string_view key) {
  const auto it = file.metadata.find(key);
  return it == file.metadata.end() ? nullptr : &it->second;
}

Result<std::optional<int64_t>> gguf_int(const GgufFile& file, std::string_view key, int64_t min,
                                        int64_t max) {
  const GgufValue* value = gguf_find(file, key);
  if (!value) return std::optional<int64_t>();
  int64_t n = 0;
  bool fits = true;
  if (const auto* u = std::get_if<uint64_t>(value)) {
    fits = *u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    n = fits ? static_cast<int64_t>(*u) : 0;
  } else if (const auto* i = std::get_if<int64_t>(value)) {
    n = *i;
  } else {
    return wrong_type(file, key, "an integer", *value);
  }
  if (!fits || n < min || n > max)
    return corrupt("{}: {} is {}, must be between {} and {}", file.source, shown(key),
                   fits ? fmt::format("{}", n) : "over 2^63", min, max);
  return std::optional<int64_t>(n);
}

Result<std::optional<double>> gguf_number(const GgufFile& file, std::string_view key) {
  const GgufValue* value = gguf_find(file, key);
  if (!value) return std::optional<double>();
  double n = 0;
  if (const auto* f = std::get_if<float>(value)) {
    n = std::isfinite(*f) ? shortest(*f) : NAN;
  } else if (const auto* d = std::get_if<double>(value)) {
    n = *d;
  } else {
    return wrong_type(file, key, "a float", *value);
  }
  if (!std::isfinite(n)) return corrupt("{}: {} is not a finite number", file.source, shown(key));
  return std::optional<double>(n);
}

Result<std::optional<bool>> gguf_bool(const GgufFile& file, std::string_view key) {
  const GgufValue* value = gguf_find(file, key);
  if (!value) return std::optional<bool>();
  if (const auto* b = std::get_if<bool>(value)) return std::optional<bool>(*b);
  return wrong_type(file, key, "a boolean", *value);
}

Result<std::optional<std::string_view>> gguf_string(const GgufFile& file, std::string_view key) {
  const GgufValue* value = gguf_find(file, key);
  if (!value) return std::optional<std::string_view>();
  if (const auto* s = std::get_if<std::string_view>(value))
    return std::optional<std::string_view>(*s);
  return wrong_type(file, key, "a string", *value);
}

Result<std::optional<std::vector<std::string_view>>> gguf_strings(const GgufFile& file,
                                                                  std::string_view key) {
  using Out = std::optional<std::vector<std::string_view>>;
  TENON_TRY(const GgufArray* array,
            find_array(file, key, {GgufType::string}, "an array of string"));
  if (!array) return Out();
  std::vector<std::string_view> out(array->count);
  const std::byte* at = array->bytes.data();
  for (std::string_view& text : out) {
    uint64_t size = 0;
    std::memcpy(&size, at, sizeof size);
    text = {reinterpret_cast<const char*>(at + sizeof size), size};
    at += sizeof size + size;
  }
  return Out(std::move(out));
}

Result<std::optional<std::vector<int64_t>>> gguf_ints(const GgufFile& file, std::string_view key) {
  using Out = std::optional<std::vector<int64_t>>;
  using T = GgufType;
  TENON_TRY(
      const GgufArray* array,
      find_array(file, key, {T::u8, T::i8, T::u16, T::i16, T::u32, T::i32}, "an array of i32"));
  if (!array) return Out();
  switch (array->element) {
    case T::u8: return Out(unpack<uint8_t, int64_t>(*array));
    case T::i8: return Out(unpack<int8_t, int64_t>(*array));
    case T::u16: return Out(unpack<uint16_t, int64_t>(*array));
    case T::i16: return Out(unpack<int16_t, int64_t>(*array));
    case T::u32: return Out(unpack<uint32_t, int64_t>(*array));
    default: return Out(unpack<int32_t, int64_t>(*array));
  }
}

Result<std::optional<std::vector<float>>> gguf_floats(const GgufFile& file, std::string_view key) {
  using Out = std::optional<std::vector<float>>;
  TENON_TRY(const GgufArray* array, find_array(file, key, {GgufType::f32}, "an array of f32"));
  if (!array) return Out();
  return Out(unpack<float, float>(*array));
}

}  // namespace tenon::checkpoint

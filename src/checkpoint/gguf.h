// One GGUF file (version 2 or 3, little-endian): metadata values and tensors, as the file spells
// them. Works on bytes already in memory; only the header is read. Every length and count is
// compared with the bytes that are left before it is used, so memory is bounded by a small multiple
// of the header. Strings, arrays and tensor views point into the file and share `keep`. Thread:
// immutable, any. Errors: corrupt (cut, overlapping, misaligned, listed twice), unsupported
// (version, type, nested array), naming `source` and the key or tensor. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/weight.h"

namespace tenon::checkpoint {

// The numbers are the file's.
enum class GgufType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};
const char* gguf_type_name(GgufType type);

// An array stays packed in the file; its elements were walked once, so reading them cannot fail.
struct GgufArray {
  GgufType element;  // never array
  uint64_t count;
  std::span<const std::byte> bytes;
};

// Unsigned and signed integers of every width, floats as stored, text, arrays.
using GgufValue = std::variant<uint64_t, int64_t, float, double, bool, std::string_view, GgufArray>;

struct GgufFile {
  std::string source;  // file name for messages
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::map<std::string_view, GgufValue> metadata;
  std::vector<WeightView> tensors;  // file order; shapes outermost first
  std::shared_ptr<const void> keep;
};

Result<GgufFile> parse_gguf(std::span<const std::byte> file, std::shared_ptr<const void> keep,
                            const std::string& source);

// Typed metadata. An absent key gives nothing; a value of another type is corrupt, naming the key.
const GgufValue* gguf_find(const GgufFile& file, std::string_view key);
Result<std::optional<int64_t>> gguf_int(const GgufFile& file, std::string_view key, int64_t min,
                                        int64_t max);
// Finite. A 32-bit value comes back as the double nearest to its shortest decimal: 1e-5, not
// 9.999999747378752e-06, so that it equals what a config.json says.
Result<std::optional<double>> gguf_number(const GgufFile& file, std::string_view key);
Result<std::optional<bool>> gguf_bool(const GgufFile& file, std::string_view key);
Result<std::optional<std::string_view>> gguf_string(const GgufFile& file, std::string_view key);
// Arrays of exactly these elements; ints of any width up to 32 bits.
Result<std::optional<std::vector<std::string_view>>> gguf_strings(const GgufFile& file,
                                                                  std::string_view key);
Result<std::optional<std::vector<int64_t>>> gguf_ints(const GgufFile& file, std::string_view key);
Result<std::optional<std::vector<float>>> gguf_floats(const GgufFile& file, std::string_view key);

}  // namespace tenon::checkpoint

// JSON glue: parsing with limits, and reading fields with errors that name them.
// Heavy to compile: include it only where JSON is read or written (json_fwd elsewhere).
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenon {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t bytes_max = 64 << 20;
  int depth_max = 128;
  // Keys keep their order, and finding one is linear: without a bound a hostile object is
  // quadratic.
  int object_keys_max = 16384;
  // A value in memory is many times its text: "[0,0,..." is bounded here.
  size_t values_max = 1 << 21;
};

// RFC 8259 text to a value. Code::invalid with the byte offset, Code::too_large past a limit.
// NaN, Infinity, comments, invalid UTF-8 and lone surrogates are errors; of equal keys the last one
// wins.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Compact text; invalid UTF-8 inside strings becomes U+FFFD, so this cannot fail.
std::string dump_json(const Json& value);

// Typed field access; `where` prefixes the message ("config.json", "messages[0]").
Result<int64_t> json_int(const Json& object, std::string_view key, std::string_view where,
                         int64_t min = std::numeric_limits<int64_t>::min(),
                         int64_t max = std::numeric_limits<int64_t>::max());
Result<double> json_number(const Json& object, std::string_view key, std::string_view where);
Result<std::string> json_string(const Json& object, std::string_view key, std::string_view where);
// Absent and null give the default; a wrong type is an error.
Result<int64_t> json_int_or(const Json& object, std::string_view key, std::string_view where,
                            int64_t fallback, int64_t min = std::numeric_limits<int64_t>::min(),
                            int64_t max = std::numeric_limits<int64_t>::max());
Result<double> json_number_or(const Json& object, std::string_view key, std::string_view where,
                              double fallback);
Result<bool> json_bool_or(const Json& object, std::string_view key, std::string_view where,
                          bool fallback);
Result<std::string> json_string_or(const Json& object, std::string_view key, std::string_view where,
                                   std::string_view fallback);

}  // namespace tenon

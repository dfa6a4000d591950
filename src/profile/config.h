// How this room reads a config: which object holds the language model's fields, and what absent,
// null and a wrong type mean. Borrowed views; the Json they came from must outlive them. Thread:
// immutable.
//
// "Absent" and "null" both mean "take the default" (ECMAScript's ??); only the fingerprint text
// tells them apart, so it asks with field().
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tenon::profile {

struct ConfigView {
  const Json* raw = nullptr;   // the whole file
  const Json* text = nullptr;  // text_config when present, else the whole file
  std::string model_type;      // as written, before any remap; empty when the file has none
  std::string where;           // "config.json" or "config.json.text_config", for messages
};

// Errors: invalid (not an object, model_type not a string, text_config not an object).
Result<ConfigView> view_config(const Json& config);

// The value, possibly a JSON null; nullptr when the key is absent.
const Json* field(const Json& object, std::string_view key);
// The value; nullptr when absent or null.
const Json* given(const Json& object, std::string_view key);

// A JSON number, or the fallback when absent or null. NaN for any other type: it compares false
// with everything, so a predicate over a malformed field does not accept.
double number_or(const Json& object, std::string_view key, double fallback);

// The whole number (5120 and 5120.0 are the same) of a value that is there. Errors: invalid.
Result<int64_t> whole_number(const Json& value, std::string_view key, std::string_view where);

}  // namespace tenon::profile

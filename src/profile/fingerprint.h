// The text under a config fingerprint. Thread: any.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tenon::profile {

// Compact JSON of the 16 structural fields, in their fixed order, as ECMAScript would print it. An
// absent field without a default is left out; a null one is printed. Errors: invalid, naming the
// field.
Result<std::string> fingerprint_text(const Json& config, const Json& kv_config);

// Shortest text that reads back as the same double, in ECMAScript's notation: 30, 0.1, 1e-7, 1e+21.
// NaN and infinities are null, as in JSON.stringify.
std::string ecma_number(double value);

}  // namespace tenon::profile

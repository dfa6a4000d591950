// Reading a request body and values in it, with errors that name the field. Thread: any.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "api/api.h"

namespace tenon::api {

// The body as a JSON object. Errors: invalid (not JSON, too deep, too many keys in one object),
// too_large.
Result<Json> read_body(const HttpRequest& request, const Limits& limits);

// One value; `name` is what the error calls it: "temperature", "messages[2].role".
Result<bool> as_bool(const Json& value, std::string_view name);
Result<std::string> as_string(const Json& value, std::string_view name);
// Integers above `max` become `max` when clip is true.
Result<int64_t> as_int(const Json& value, std::string_view name, int64_t min, int64_t max,
                       bool clip = false);
Result<double> as_number(const Json& value, std::string_view name, double min, double max,
                         bool above_min = false);
// Any 64-bit integer, signed or not, as its bits.
Result<uint64_t> as_bits64(const Json& value, std::string_view name);
// A list of token ids, each in [0, vocab_size).
Result<std::vector<int32_t>> as_ids(const Json& value, std::string_view name, int32_t vocab_size);

// A 400 for the first key of `object` that is not in `known`. `where` prefixes the key:
// "messages[2]".
Status only_keys(const Json& object, std::initializer_list<std::string_view> known,
                 std::string_view where);

// Absent or null: nullptr.
const Json* field(const Json& object, std::string_view name);

// The model a request names (absent: the default one). Errors: invalid (not a string), not_found.
Result<std::shared_ptr<const engine::Model>> read_model(const Context& context, const Json& body);

// At most `bytes_max` bytes of text from outside, for messages; never cuts a character.
std::string excerpt(std::string_view text, size_t bytes_max = 64);

}  // namespace tenon::api

#include "api/body.h"

#include <cmath>

namespace tenon::api {
Result<Json> read_body(const HttpRequest& request, const Limits& limits) {
  if (request.body.empty())
    return invalid("the request body is empty; send a JSON object").because("invalid_json");
  JsonLimits json;
  json.bytes_max = limits.body_bytes_max;
  json.depth_max = limits.json_depth_max;
  json.object_keys_max = limits.json_keys_max;
  json.values_max = limits.json_values_max;
  auto parsed = parse_json(request.body, json);
  if (!parsed.ok()) {
    const bool big = request.body.size() > limits.body_bytes_max;
    Error error = big ? too_large("{}", parsed.error().message)
                      : invalid("the request body: {}", parsed.error().message);
    return std::move(error.because(big ? "" : "invalid_json"));
  }
  if (!parsed->is_object())
    return invalid("the request body must be a JSON object").because("invalid_json");
  return parsed;
}

Result<bool> as_bool(const Json& value, std::string_view name) {
  if (!value.is_boolean()) return invalid("{} must be true or false", name).at(name);
  return value.get<bool>();
}

Result<std::string> as_string(const Json& value, std::string_view name) {
  if (!value.is_string()) return invalid("{} must be a string", name).at(name);
  return value.get<std::string>();
}

Result<int64_t> as_int(const Json& value, std::string_view name, int64_t min, int64_t max,
                       bool clip) {
  const bool over =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(max);
  if (over && clip) return max;
  if (!value.is_number_integer() || over || value.get<int64_t>() < min) {
    if (clip) return invalid("{} must be an integer of at least {}", name, min).at(name);
    return invalid("{} must be an integer between {} and {}", name, min, max).at(name);
  }
  return value.get<int64_t>();
}

Result<double> as_number(const Json& value, std::string_view name, double min, double max,
                         bool above_min) {
  const double x = value.is_number() ? value.get<double>() : std::nan("");
  if (!(above_min ? x > min : x >= min) || !(x <= max)) {
    if (above_min)
      return invalid("{} must be a number above {} and at most {}", name, min, max).at(name);
    return invalid("{} must be a number between {} and {}", name, min, max).at(name);
  }
  return x;
}

Result<uint64_t> as_bits64(const Json& value, std::string_view name) {
  if (!value.is_number_integer()) return invalid("{} must be a 64-bit integer", name).at(name);
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  return static_cast<uint64_t>(value.get<int64_t>());
}

Result<std::vector<int32_t>> as_ids(const Json& value, std::string_view name, int32_t vocab_size) {
  if (!value.is_array()) return invalid("{} must be a list of token ids", name).at(name);
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool good =
        item.is_number_unsigned() && item.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
    if (!good)
      return invalid("{}[{}] is not a token id: an integer from 0 to {}", name, ids.size(),
                     vocab_size - 1)
          .at(name);
    ids.push_back(static_cast<int32_t>(item.get<uint64_t>()));
  }
  return ids;
}

Status only_keys(const Json& object, std::initializer_list<std::string_view> known,
                 std::string_view where) {
  for (const auto& [key, value] : object.items()) {
    bool found = value.is_null();
    for (const std::string_view name : known) found = found || key == name;
    if (found) continue;
    const std::string prefix = where.empty() ? "" : std::string(where) + ".";
    const std::string name = prefix + excerpt(key);
    return invalid("{} is not a field this server knows", name).at(name).because("unknown_field");
  }
  return {};
}

const Json* field(const Json& object, std::string_view name) {
  const auto it = object.find(std::string(name));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<std::shared_ptr<const engine::Model>> read_model(const Context& context, const Json& body) {
  const Json* value = field(body, "model");
  if (!value) return context.engine->model("");
  TENON_TRY(const std::string name, as_string(*value, "model"));
  if (context.single_model_alias && context.engine->models().size() == 1)
    return context.engine->model("");
  // The engine takes "" for its default, which a client that sent "" did not ask for.
  if (!name.empty() && name.size() <= 256) {
    auto model = context.engine->model(name);
    if (model.ok() || model.error().code != Code::not_found) return model;
  }
  return not_found("The model '{}' does not exist; GET /v1/models lists those there are.",
                   excerpt(name))
      .at("model")
      .because("model_not_found");
}

std::string excerpt(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace tenon::api

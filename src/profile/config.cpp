#include "profile/config.h"

#include <cmath>
#include <limits>

namespace tenon::profile {

namespace {
// Past 2^53 a double skips whole numbers, so two configs could share a fingerprint by rounding.
constexpr double kExactMax = 9007199254740992.0;
}  // namespace

const Json* field(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() ? nullptr : &*it;
}

const Json* given(const Json& object, std::string_view key) {
  const Json* value = field(object, key);
  return value && !value->is_null() ? value : nullptr;
}

double number_or(const Json& object, std::string_view key, double fallback) {
  const Json* value = given(object, key);
  if (!value) return fallback;
  return value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

Result<int64_t> whole_number(const Json& value, std::string_view key, std::string_view where) {
  if (!value.is_number()) return invalid("{}.{} must be a whole number", where, key).at(key);
  const double number = value.get<double>();
  if (!(std::abs(number) <= kExactMax) || std::trunc(number) != number)
    return invalid("{}.{} is {}, must be a whole number", where, key, value.dump()).at(key);
  return static_cast<int64_t>(number);
}

Result<ConfigView> view_config(const Json& config) {
  if (!config.is_object()) return invalid("config.json is not a JSON object");
  ConfigView view{&config, &config, {}, "config.json"};
  TENON_TRY(view.model_type, json_string_or(config, "model_type", "config.json", ""));
  if (const Json* text = given(config, "text_config")) {
    if (!text->is_object())
      return invalid("config.json.text_config must be an object").at("text_config");
    view.text = text;
    view.where = "config.json.text_config";
  }
  return view;
}

}  // namespace tenon::profile

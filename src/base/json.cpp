#include "base/json.h"

#include <cmath>

namespace tenon {

namespace {

// Builds the value through nlohmann's SAX interface so that depth is bounded before any recursion
// and errors come back as values.
class BoundedSax : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  BoundedSax(Json& value, const JsonLimits& limits) : Base(value, false), limits_(limits) {}

  bool start_object(std::size_t n) {
    num_keys_.push_back(0);
    return deeper() && Base::start_object(n);
  }
  bool start_array(std::size_t n) { return deeper() && Base::start_array(n); }
  bool null() { return one_more() && Base::null(); }
  bool boolean(bool v) { return one_more() && Base::boolean(v); }
  bool number_integer(int64_t v) { return one_more() && Base::number_integer(v); }
  bool number_unsigned(uint64_t v) { return one_more() && Base::number_unsigned(v); }
  bool number_float(double v, const std::string& text) {
    return one_more() && Base::number_float(v, text);
  }
  bool string(std::string& v) { return one_more() && Base::string(v); }
  bool end_object() {
    num_keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (++num_keys_.back() <= limits_.object_keys_max) return Base::key(name);
    error = too_large("a JSON object has more than {} keys", limits_.object_keys_max);
    return false;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) {
    std::string what = e.what();
    const auto colon = what.rfind(": ");
    error = invalid("not valid JSON at byte {}{}", position,
                    colon == std::string::npos ? "" : what.substr(colon));
    return false;
  }

  std::optional<Error> error;

 private:
  bool one_more() {
    if (++num_values_ <= limits_.values_max) return true;
    error = too_large("the JSON holds more than {} values", limits_.values_max);
    return false;
  }
  bool deeper() {
    if (!one_more()) return false;
    if (++depth_ <= limits_.depth_max) return true;
    error = too_large("JSON is nested deeper than {} levels", limits_.depth_max);
    return false;
  }
  const JsonLimits& limits_;
  int depth_ = 0;
  size_t num_values_ = 0;
  std::vector<int> num_keys_;  // of the objects that are open
};

Error wrong_type(std::string_view key, std::string_view where, std::string_view want) {
  return invalid("{}.{} must be {}", where, key, want).at(key);
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(std::string(key));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<int64_t> to_int(const Json& value, std::string_view key, std::string_view where, int64_t min,
                       int64_t max) {
  if (!value.is_number_integer()) return wrong_type(key, where, "an integer");
  const bool over =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const int64_t n = over ? std::numeric_limits<int64_t>::max() : value.get<int64_t>();
  if (over || n < min || n > max)
    return invalid("{}.{} is {}, must be between {} and {}", where, key, value.dump(), min, max)
        .at(key);
  return n;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max)
    return too_large("JSON of {} bytes is over the limit of {}", text.size(), limits.bytes_max);
  Json root;
  BoundedSax sax(root, limits);
  const bool good = Json::sax_parse(text.begin(), text.end(), &sax);
  if (!good) return sax.error ? *sax.error : invalid("not valid JSON");
  return root;
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<int64_t> json_int(const Json& object, std::string_view key, std::string_view where,
                         int64_t min, int64_t max) {
  const Json* v = find(object, key);
  if (!v) return invalid("{}.{} is missing", where, key).at(key);
  return to_int(*v, key, where, min, max);
}

Result<int64_t> json_int_or(const Json& object, std::string_view key, std::string_view where,
                            int64_t fallback, int64_t min, int64_t max) {
  const Json* v = find(object, key);
  if (!v) return fallback;
  return to_int(*v, key, where, min, max);
}

Result<double> json_number(const Json& object, std::string_view key, std::string_view where) {
  const Json* v = find(object, key);
  if (!v) return invalid("{}.{} is missing", where, key).at(key);
  if (!v->is_number()) return wrong_type(key, where, "a number");
  return v->get<double>();
}

Result<double> json_number_or(const Json& object, std::string_view key, std::string_view where,
                              double fallback) {
  return find(object, key) ? json_number(object, key, where) : Result<double>(fallback);
}

Result<std::string> json_string(const Json& object, std::string_view key, std::string_view where) {
  const Json* v = find(object, key);
  if (!v) return invalid("{}.{} is missing", where, key).at(key);
  if (!v->is_string()) return wrong_type(key, where, "a string");
  return v->get<std::string>();
}

Result<std::string> json_string_or(const Json& object, std::string_view key, std::string_view where,
                                   std::string_view fallback) {
  return find(object, key) ? json_string(object, key, where)
                           : Result<std::string>(std::string(fallback));
}

Result<bool> json_bool_or(const Json& object, std::string_view key, std::string_view where,
                          bool fallback) {
  const Json* v = find(object, key);
  if (!v) return fallback;
  if (!v->is_boolean()) return wrong_type(key, where, "true or false");
  return v->get<bool>();
}

}  // namespace tenon

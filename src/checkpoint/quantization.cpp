#include "checkpoint/quantization.h"

#include "checkpoint/layout.h"

namespace tenon::checkpoint {

namespace {

std::string value_text(const Json& value) { return shown(dump_json(value)); }

// `mode` of an object; affine when it has none.
Status check_mode(const Json& object, std::string_view where, std::string_view source) {
  const auto mode = object.find("mode");
  if (mode == object.end() || mode->is_null() || *mode == "affine") return {};
  return unsupported("{}: {}.mode {} is not supported; supported: affine", source, where,
                     value_text(*mode));
}

// The first of `object` and `defaults` that has `key`, if it is one of `allowed`.
Result<int> pick(const Json& object, const Json& defaults, const char* key,
                 std::initializer_list<int> allowed, std::string_view where,
                 std::string_view source) {
  const Json* value = nullptr;
  for (const Json* from : {&object, &defaults})
    if (!value && from->contains(key)) value = &(*from)[key];
  if (!value) return corrupt("{}: {}.{} is missing", source, where, key);
  std::string list;
  for (int candidate : allowed) {
    if (value->is_number_integer() && *value == candidate) return candidate;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", candidate);
  }
  return unsupported("{}: {}.{} is {}, must be one of {}", source, where, key, value_text(*value),
                     list);
}

}  // namespace

Result<Json> find_quantization(const Json& config, std::string_view source) {
  for (const char* key : {"quantization", "quantization_config"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) continue;
    if (!it->is_object()) return corrupt("{}: {} must be an object", source, key);
    if (it->contains("quant_method"))
      return unsupported("{}: {}.quant_method {} is not supported; supported: MLX affine", source,
                         key, value_text((*it)["quant_method"]));
    TENON_OK(check_mode(*it, key, source));
    return *it;
  }
  return Json();
}

Result<Scheme> scheme_of(const Json& quantization, std::string_view path, std::string_view source) {
  static const Json kNothing = Json::object();
  if (!quantization.is_object()) return Scheme{.quantized = false};
  std::string where = "quantization";
  const Json* own = &kNothing;
  if (const auto it = quantization.find(std::string(path)); it != quantization.end()) {
    where += "." + shown(path);
    if (it->is_boolean() && !it->get<bool>()) return Scheme{.quantized = false};
    if (it->is_object()) {
      own = &*it;
    } else if (!it->is_boolean()) {
      return corrupt("{}: {} must be an object or a boolean", source, where);
    }
    TENON_OK(check_mode(*own, where, source));
  }
  Scheme scheme;
  TENON_TRY(scheme.bits, pick(*own, quantization, "bits", {2, 3, 4, 5, 6, 8}, where, source));
  TENON_TRY(scheme.group_size,
            pick(*own, quantization, "group_size", {32, 64, 128}, where, source));
  return scheme;
}

}  // namespace tenon::checkpoint

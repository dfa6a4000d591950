#include "checkpoint/quantization.h"

#include <algorithm>
#include <vector>

#include "checkpoint/layout.h"

namespace tenon::checkpoint {

namespace {

std::string value_text(const Json& value) { return shown(dump_json(value)); }

constexpr QuantMode kModes[] = {QuantMode::affine, QuantMode::mxfp4, QuantMode::mxfp8,
                                QuantMode::nvfp4};

struct Values {
  std::vector<int> bits, group_sizes;
};
Values values_of(QuantMode mode) {
  switch (mode) {
    case QuantMode::affine: return {{2, 3, 4, 5, 6, 8}, {32, 64, 128}};
    case QuantMode::mxfp4: return {{4}, {32}};
    case QuantMode::mxfp8: return {{8}, {32}};
    case QuantMode::nvfp4: return {{4}, {16}};
  }
  return {};
}

// `mode` of an object; affine when it has none.
Result<QuantMode> mode_of(const Json& object, std::string_view where, std::string_view source) {
  const auto mode = object.find("mode");
  if (mode == object.end() || mode->is_null()) return QuantMode::affine;
  std::string list;
  for (QuantMode candidate : kModes) {
    if (*mode == quant_mode_name(candidate)) return candidate;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", quant_mode_name(candidate));
  }
  return unsupported("{}: {}.mode {} is not supported; supported: {}", source, where,
                     value_text(*mode), list);
}

// The first of `object` and `defaults` that has `key`, if it is one of `allowed`. What can only
// have one value may be left out.
Result<int> pick(const Json& object, const Json& defaults, const char* key,
                 const std::vector<int>& allowed, std::string_view where, std::string_view source) {
  const Json* value = nullptr;
  for (const Json* from : {&object, &defaults})
    if (!value && from->contains(key)) value = &(*from)[key];
  if (!value && allowed.size() == 1) return allowed[0];
  if (!value) return corrupt("{}: {}.{} is missing", source, where, key);
  std::string list;
  for (int candidate : allowed) {
    if (value->is_number_integer() && *value == candidate) return candidate;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", candidate);
  }
  return unsupported("{}: {}.{} is {}, must be {}{}", source, where, key, value_text(*value),
                     allowed.size() == 1 ? "" : "one of ", list);
}

}  // namespace

Result<Json> find_quantization(const Json& config, std::string_view source) {
  for (const char* key : {"quantization", "quantization_config"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) continue;
    if (!it->is_object()) return corrupt("{}: {} must be an object", source, key);
    if (it->contains("quant_method"))
      return unsupported("{}: {}.quant_method {} is not supported; supported: MLX's own", source,
                         key, value_text((*it)["quant_method"]));
    TENON_OK(mode_of(*it, key, source));
    return *it;
  }
  return Json();
}

Result<Scheme> scheme_of(const Json& quantization, std::string_view path, std::string_view source) {
  static const Json kNothing = Json::object();
  if (!quantization.is_object()) return Scheme{.quantized = false};
  std::string where = "quantization";
  TENON_TRY(const QuantMode default_mode, mode_of(quantization, where, source));
  Scheme scheme{.mode = default_mode};
  const Json* own = &kNothing;
  if (const auto it = quantization.find(std::string(path)); it != quantization.end()) {
    where += "." + shown(path);
    if (it->is_boolean() && !it->get<bool>()) return Scheme{.quantized = false};
    if (it->is_object()) {
      own = &*it;
      TENON_TRY(scheme.mode, mode_of(*own, where, source));
    } else if (!it->is_boolean()) {
      return corrupt("{}: {} must be an object or a boolean", source, where);
    }
  }
  // Bits and groups of another mode are nobody's defaults.
  const Json& defaults = scheme.mode == default_mode ? quantization : kNothing;
  const Values values = values_of(scheme.mode);
  TENON_TRY(scheme.bits, pick(*own, defaults, "bits", values.bits, where, source));
  TENON_TRY(scheme.group_size,
            pick(*own, defaults, "group_size", values.group_sizes, where, source));
  return scheme;
}

Status check_scheme(const Scheme& scheme) {
  if (!scheme.quantized) return {};
  const Values values = values_of(scheme.mode);
  const auto check = [&](const char* what, int value, const std::vector<int>& allowed) -> Status {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
    return invalid("{} {} does not fit mode {}, which has {}", what, value,
                   quant_mode_name(scheme.mode), fmt::join(allowed, ", "));
  };
  TENON_OK(check("bits", scheme.bits, values.bits));
  return check("group", scheme.group_size, values.group_sizes);
}

}  // namespace tenon::checkpoint

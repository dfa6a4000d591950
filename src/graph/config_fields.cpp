#include "graph/config_fields.h"

#include <algorithm>

namespace tenon::graph {

namespace {
constexpr int kSizeMax = 1 << 24;
}

Result<int> size_of(const Json& config, std::string_view key) {
  TENON_TRY(const int64_t n, json_int(config, key, kConfig, 1, kSizeMax));
  return static_cast<int>(n);
}
Result<int> size_or(const Json& config, std::string_view key, int fallback) {
  TENON_TRY(const int64_t n, json_int_or(config, key, kConfig, fallback, 1, kSizeMax));
  return static_cast<int>(n);
}
Result<float> number_of(const Json& config, std::string_view key) {
  TENON_TRY(const double x, json_number(config, key, kConfig));
  return static_cast<float>(x);
}

Status describe_windows(const Json& config, DecoderSpec& spec) {
  spec.layers.resize(spec.num_layers);
  TENON_TRY(const int64_t window, json_int_or(config, "sliding_window", kConfig, 0, 0, 1 << 30));
  const auto types = config.find("layer_types");
  if (types == config.end() || types->is_null()) return {};
  if (!types->is_array() || static_cast<int>(types->size()) != spec.num_layers)
    return invalid("config.json layer_types must list {} layers", spec.num_layers)
        .at("layer_types");
  for (int i = 0; i < spec.num_layers; ++i) {
    const Json& type = (*types)[i];
    if (type == "full_attention") continue;
    if (type != "sliding_attention")
      return unsupported("config.json layer_types: '{}' is not built here",
                         type.is_string() ? type.get<std::string>() : type.dump());
    if (window == 0)
      return invalid("config.json sliding_window is missing; layer_types asks for it")
          .at("sliding_window");
    spec.layers[i].window = static_cast<int>(window);
  }
  return {};
}

Status describe_context(const Json& config, DecoderSpec& spec) {
  TENON_TRY(const int64_t stated,
            json_int_or(config, "max_position_embeddings", kConfig, 0, 1, 1 << 30));
  TENON_TRY(const int64_t window, json_int_or(config, "sliding_window", kConfig, 0, 0, 1 << 30));
  TENON_TRY(const bool used, json_bool_or(config, "use_sliding_window", kConfig, true));
  const bool in_layers = std::ranges::any_of(spec.layers, [](auto& l) { return l.window > 0; });
  const bool caps = window > 0 && used && !in_layers;
  spec.context_len = static_cast<int>(caps && (stated == 0 || window < stated) ? window : stated);
  return {};
}

Status plain_rope_only(const DecoderSpec& spec) {
  if (!spec.rope.scaling.is_object()) return {};
  const auto type = spec.rope.scaling.find("rope_type"), old = spec.rope.scaling.find("type");
  const bool plain = (type == spec.rope.scaling.end() || *type == "default") &&
                     (old == spec.rope.scaling.end() || *old == "default");
  if (plain) return {};
  return unsupported("config.json rope_scaling: this model type has none");
}

}  // namespace tenon::graph

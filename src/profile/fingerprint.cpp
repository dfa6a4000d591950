// Config fingerprint: a structural guard, not a content hash. The definition is the public one of
// mlx-bun (SHA-256 over compact JSON, first 16 hex digits); two builtin constants depend on it.
#include "profile/fingerprint.h"

#include <openssl/evp.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "profile/config.h"
#include "profile/profile.h"

namespace tenon::profile {

namespace {

constexpr int64_t kLayersMax =
    1 << 16;  // "repeated per layer" must not become an allocation attack

// Builds one object; a key whose value is undefined is simply not added.
class Writer {
 public:
  Writer(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  void add(std::string_view key, std::string_view text) {
    text_ += fmt::format("{}\"{}\":{}", text_.empty() ? "" : ",", key, text);
  }
  void add_bool(std::string_view key, bool value) { add(key, value ? "true" : "false"); }

  // A number as it is: absent adds nothing, null adds null.
  Status copy(std::string_view key, std::string_view name) {
    const Json* value = field(object_, name);
    if (!value) return {};
    if (value->is_null()) {
      add(key, "null");
      return {};
    }
    TENON_TRY(const int64_t n, whole_number(*value, name, where_));
    add(key, std::to_string(n));
    return {};
  }
  Status copy_or(std::string_view key, std::string_view name, int64_t fallback) {
    if (given(object_, name)) return copy(key, name);
    add(key, std::to_string(fallback));
    return {};
  }
  const std::string& where() const { return where_; }
  std::string finish() const { return "{" + text_ + "}"; }

 private:
  const Json& object_;
  const std::string where_;
  std::string text_;
};

// diffusion_gemma's file may hold ids and a quantization map only; these are the family's
// dimensions.
Json with_diffusion_defaults(const Json& text) {
  Json full = {{"hidden_size", 2816},
               {"num_hidden_layers", 30},
               {"num_attention_heads", 16},
               {"num_key_value_heads", 8},
               {"num_global_key_value_heads", 2},
               {"head_dim", 256},
               {"global_head_dim", 512},
               {"sliding_window", 1024},
               {"enable_moe_block", true},
               {"num_experts", 128},
               {"top_k_experts", 8},
               {"final_logit_softcapping", 30.0}};
  Json layers = Json::array();
  for (int i = 0; i < 30; ++i)
    layers.push_back(i % 6 == 5 ? "full_attention" : "sliding_attention");
  full["layer_types"] = std::move(layers);
  for (const auto& [key, value] : text.items()) full[key] = value;
  return full;
}

Result<int64_t> layer_count(const Json& text, const std::string& where) {
  return json_int(text, "num_hidden_layers", where, 0, kLayersMax);
}

Result<std::string> layer_types(const Json& text, const ConfigView& view) {
  const bool all_full = view.model_type == "glm_moe_dsa";
  const Json* types = given(text, "layer_types");
  if (all_full || (!types && view.model_type == "llama")) {
    TENON_TRY(const int64_t layers, layer_count(text, view.where));
    std::string out;
    for (int64_t i = 0; i < layers; ++i) out += i ? ",\"full_attention\"" : "\"full_attention\"";
    return "[" + out + "]";
  }
  if (!types) return std::string("[]");
  if (!types->is_array())
    return invalid("{}.layer_types must be an array", view.where).at("layer_types");
  for (const Json& each : *types)
    if (!each.is_string())
      return invalid("{}.layer_types must hold strings only", view.where).at("layer_types");
  return dump_json(*types);
}

// floor(hidden / heads) in ECMAScript's arithmetic: a missing side gives NaN, which prints as null.
double default_head_dim(const Json& text) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto side = [&](const char* key) {
    const Json* value = field(text, key);
    return value && value->is_null() ? 0.0 : number_or(text, key, none);
  };
  return std::floor(side("hidden_size") / side("num_attention_heads"));
}

Status add_head_dims(Writer& out, const Json& text, const ConfigView& view) {
  if (view.model_type == "glm_moe_dsa") {
    // qk_head_dim; the file's head_dim names different things in different libraries.
    TENON_TRY(const int64_t nope, json_int(text, "qk_nope_head_dim", view.where, 1, 1 << 20));
    TENON_TRY(const int64_t rope, json_int(text, "qk_rope_head_dim", view.where, 1, 1 << 20));
    out.add("headDim", std::to_string(nope + rope));
    out.add("globalHeadDim", std::to_string(nope + rope));
    return {};
  }
  const std::string fallback = ecma_number(default_head_dim(text));
  const auto add = [&](const char* key, const char* name) -> Status {
    if (given(text, name)) return out.copy(key, name);
    out.add(key, fallback);
    return {};
  };
  TENON_OK(add("headDim", "head_dim"));
  return add("globalHeadDim", given(text, "global_head_dim") ? "global_head_dim" : "head_dim");
}

Status add_experts(Writer& out, const Json& text, const ConfigView& view) {
  const bool glm = view.model_type == "glm_moe_dsa";
  const bool always = glm || view.model_type == "qwen3_moe";  // MoE by type, without the flag
  TENON_TRY(const bool flag, json_bool_or(text, "enable_moe_block", view.where, false));
  out.add_bool("enableMoeBlock", always || flag);
  if (!always && !flag) {
    out.add("numExperts", "0");
    out.add("topKExperts", "0");
    return {};
  }
  TENON_OK(out.copy_or("numExperts", glm ? "n_routed_experts" : "num_experts", 0));
  return out.copy_or("topKExperts", always ? "num_experts_per_tok" : "top_k_experts", 0);
}

Result<std::string> kv_quant(const Json& kv_config) {
  if (kv_config.is_null()) return std::string("null");
  if (!kv_config.is_array()) return invalid("kv_config.json must be an array");
  std::string list;
  for (size_t i = 0; i < kv_config.size(); ++i) {
    const Json& entry = kv_config[i];
    if (!entry.is_object()) return invalid("kv_config.json[{}] must be an object", i);
    Writer out(entry, fmt::format("kv_config.json[{}]", i));
    TENON_OK(out.copy("layerIdx", "layer_idx"));
    TENON_OK(out.copy("bits", "bits"));
    TENON_OK(out.copy("groupSize", "group_size"));
    list += (i ? "," : "") + out.finish();
  }
  return "[" + list + "]";
}

Result<std::string> softcap(const Json& text, const std::string& where) {
  if (!given(text, "final_logit_softcapping")) return std::string("null");
  TENON_TRY(const double cap, json_number(text, "final_logit_softcapping", where));
  return ecma_number(cap);
}

}  // namespace

std::string ecma_number(double value) {
  if (!std::isfinite(value)) return "null";
  if (value == 0) return "0";  // and -0
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));  // d.ddde+XX
  const auto e = shortest.find('e');
  std::string digits(1, shortest[0]);
  if (e > 2) digits += shortest.substr(2, e - 2);
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  const int point = exponent + 1,
            count = static_cast<int>(digits.size());  // value = 0.digits * 10^point
  std::string text;
  if (point > 21 || point <= -6) {
    text = digits.substr(0, 1) + (count > 1 ? "." + digits.substr(1) : "") + "e" +
           (exponent < 0 ? "-" : "+") + std::to_string(std::abs(exponent));
  } else if (point <= 0) {
    text = "0." + std::string(static_cast<size_t>(-point), '0') + digits;
  } else if (count <= point) {
    text = digits + std::string(static_cast<size_t>(point - count), '0');
  } else {
    text = digits.substr(0, static_cast<size_t>(point)) + "." +
           digits.substr(static_cast<size_t>(point));
  }
  return value < 0 ? "-" + text : text;
}

Result<std::string> fingerprint_text(const Json& config, const Json& kv_config) {
  TENON_TRY(const ConfigView view, view_config(config));
  Json filled;
  if (view.model_type == "diffusion_gemma") filled = with_diffusion_defaults(*view.text);
  const Json& text = filled.is_null() ? *view.text : filled;

  Writer out(text, view.where);
  TENON_TRY(const std::string layers, layer_types(text, view));
  out.add("layerTypes", layers);
  TENON_OK(out.copy("hiddenSize", "hidden_size"));
  TENON_OK(add_head_dims(out, text, view));
  TENON_OK(out.copy("numAttentionHeads", "num_attention_heads"));
  TENON_OK(out.copy("numKeyValueHeads", "num_key_value_heads"));
  const bool global = given(text, "num_global_key_value_heads");
  TENON_OK(out.copy("numGlobalKeyValueHeads",
                    global ? "num_global_key_value_heads" : "num_key_value_heads"));
  TENON_TRY(const bool k_eq_v, json_bool_or(text, "attention_k_eq_v", view.where, false));
  out.add_bool("attentionKEqV", k_eq_v);
  TENON_OK(out.copy_or("numKvSharedLayers", "num_kv_shared_layers", 0));
  TENON_OK(add_experts(out, text, view));
  TENON_OK(out.copy_or("hiddenSizePerLayerInput", "hidden_size_per_layer_input", 0));
  TENON_OK(out.copy_or("slidingWindow", "sliding_window", 0));
  TENON_TRY(const std::string cap, softcap(text, view.where));
  out.add("finalLogitSoftcapping", cap);
  TENON_TRY(const std::string quant, kv_quant(kv_config));
  out.add("kvQuant", quant);
  return out.finish();
}

Result<std::string> config_fingerprint(const Json& config, const Json& kv_config) {
  TENON_TRY(const std::string text, fingerprint_text(config, kv_config));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) != 1 || size != 32)
    return internal("SHA-256 is not available in this OpenSSL");
  std::string hex;
  for (int i = 0; i < 8; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace tenon::profile

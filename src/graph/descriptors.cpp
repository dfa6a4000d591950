#include "graph/descriptors.h"

#include <algorithm>
#include <cmath>

#include "graph/config_fields.h"

namespace tenon::graph {

namespace {

double scale_for(int head_dim) { return std::pow(static_cast<double>(head_dim), -0.5); }

void set_head_dim(DecoderSpec& spec, int head_dim) {
  spec.head_dim = head_dim;
  spec.attention_scale = scale_for(head_dim);
}

// These types know one head width, whatever head_dim says.
void ignore_head_dim(DecoderSpec& spec) { set_head_dim(spec, spec.hidden_size / spec.num_heads); }

Status require_activation(const Json& config, std::initializer_list<std::string_view> names) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    TENON_TRY(const std::string act, json_string_or(config, key, kConfig, *names.begin()));
    if (std::ranges::find(names, act) == names.end())
      return unsupported("config.json {} '{}': this graph has {}", key, act, *names.begin());
  }
  return {};
}

Result<DecoderSpec> describe_smollm3(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_llama(config));
  TENON_TRY(const int interval, size_or(config, "no_rope_layer_interval", 4));
  const auto list = config.find("no_rope_layers");
  const bool given = list != config.end() && list->is_array();
  if (given && static_cast<int>(list->size()) != spec.num_layers)
    return invalid("config.json no_rope_layers must list {} layers", spec.num_layers)
        .at("no_rope_layers");
  for (int i = 0; i < spec.num_layers; ++i)
    spec.layers[i].rotates =
        given ? (*list)[i] == 1 || (*list)[i] == true : (i + 1) % interval != 0;
  return spec;
}

Result<DecoderSpec> describe_qwen2(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_llama(config));
  ignore_head_dim(spec);
  spec.qkv_bias = true;
  spec.o_bias = spec.ffn_bias = false;
  TENON_TRY(spec.rope, describe_rope(config, spec.head_dim, 1e6));
  return spec;
}

Result<DecoderSpec> describe_qwen3(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_llama(config));
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = false;
  spec.head_norms = DecoderSpec::HeadNorms::each;
  return spec;
}

// Its RoPE scaling is longrope over part of a head, with two fields beside rope_scaling.
Status describe_phi3_rope(const Json& config, DecoderSpec& spec) {
  TENON_TRY(const int dims, rotary_dims(config, spec.head_dim, 1));
  TENON_TRY(const double base, json_number_or(config, "rope_theta", kConfig, 10000));
  TENON_TRY(const bool traditional, json_bool_or(config, "rope_traditional", kConfig, false));
  TENON_TRY(const int positions, size_or(config, "max_position_embeddings", 131072));
  TENON_TRY(const int original, size_or(config, "original_max_position_embeddings", 4096));
  spec.rope = {dims, base, traditional, {}, positions};
  const auto scaling = config.find("rope_scaling");
  if (scaling == config.end() || !scaling->is_object() || scaling->empty()) return {};
  TENON_TRY(const std::string type, json_string(*scaling, "type", kConfig));
  if (type == "linear") {
    spec.rope.scaling = *scaling;
  } else if (type == "longrope" || type == "su") {
    spec.rope.scaling = *scaling;
    spec.rope.scaling["type"] = "longrope";
    spec.rope.scaling["original_max_position_embeddings"] = original;
  }  // the profile has said that other types are off
  return {};
}

Result<DecoderSpec> describe_phi3(const Json& config) {
  Json plain = config;
  plain.erase("rope_scaling");
  plain.erase("partial_rotary_factor");
  if (!plain.contains("tie_word_embeddings")) plain["tie_word_embeddings"] = false;
  TENON_TRY(DecoderSpec spec, describe_llama(plain));
  ignore_head_dim(spec);
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = false;
  spec.fused_qkv = spec.fused_gate_up = true;
  TENON_OK(describe_phi3_rope(config, spec));
  return spec;
}

Result<DecoderSpec> describe_olmo2(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_llama(config));
  spec.attention_norm.clear();
  spec.attention_post_norm = "post_attention_layernorm";
  spec.ffn_norm.clear();
  spec.ffn_post_norm = "post_feedforward_layernorm";
  spec.head_norms = DecoderSpec::HeadNorms::whole;
  return spec;
}

Result<DecoderSpec> describe_glm4(const Json& config) {
  Json plain = config;
  plain.erase("partial_rotary_factor");
  TENON_TRY(DecoderSpec spec, describe_llama(plain));
  TENON_OK(plain_rope_only(spec));
  TENON_TRY(const double part, json_number(config, "partial_rotary_factor", kConfig));
  TENON_TRY(const int dims, rotary_dims(config, spec.head_dim, part));
  TENON_TRY(spec.rope, describe_rope(plain, dims, 10000, true));
  spec.o_bias = spec.ffn_bias = spec.tied = false;
  spec.fused_gate_up = true;
  spec.attention_post_norm = "post_self_attn_layernorm";
  spec.ffn_post_norm = "post_mlp_layernorm";
  return spec;
}

Result<DecoderSpec> describe_granite(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_llama(config));
  ignore_head_dim(spec);
  spec.rope.traditional = false;
  TENON_TRY(spec.attention_scale, number_of(config, "attention_multiplier"));
  TENON_TRY(spec.embedding_scale, number_of(config, "embedding_multiplier"));
  TENON_TRY(spec.residual_scale, number_of(config, "residual_multiplier"));
  TENON_TRY(spec.logits_divisor, number_of(config, "logits_scaling"));
  return spec;
}

Result<DecoderSpec> describe_minicpm(const Json& config) {
  Json full = config;
  if (!full.contains("tie_word_embeddings")) full["tie_word_embeddings"] = false;
  TENON_TRY(DecoderSpec spec, describe_llama(full));
  ignore_head_dim(spec);
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = false;
  TENON_TRY(spec.rope, describe_rope(config, spec.head_dim, 1e6));
  TENON_TRY(spec.embedding_scale, number_of(config, "scale_emb"));
  TENON_TRY(const double depth, json_number(config, "scale_depth", kConfig));
  TENON_TRY(const int base_width, size_of(config, "dim_model_base"));
  spec.residual_scale = static_cast<float>(depth / std::sqrt(static_cast<double>(spec.num_layers)));
  if (!spec.tied)
    spec.hidden_divisor = static_cast<float>(static_cast<double>(spec.hidden_size) / base_width);
  return spec;
}

Result<DecoderSpec> describe_starcoder2(const Json& config) {
  Json full = config;
  TENON_TRY(const double eps, json_number_or(config, "norm_epsilon", kConfig, 1e-5));
  full["rms_norm_eps"] = eps;
  if (!full.contains("vocab_size")) full["vocab_size"] = 49152;
  full.erase("hidden_act");
  TENON_OK(require_activation(config, {"gelu", "gelu_pytorch_tanh"}));
  TENON_TRY(DecoderSpec spec, describe_llama(full));
  TENON_OK(plain_rope_only(spec));
  ignore_head_dim(spec);
  spec.norm.centered = true;
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = true;
  spec.gated = false;
  spec.up = "mlp.c_fc";
  spec.down = "mlp.c_proj";
  spec.activation = ops::Activation::gelu;
  TENON_TRY(spec.rope, describe_rope(config, spec.head_dim, 1e5));
  return spec;
}

struct Descriptor {
  const char* type;
  Result<DecoderSpec> (*describe)(const Json& config);
};
constexpr Descriptor kDescriptors[] = {
    {"gemma", describe_gemma},
    {"gemma2", describe_gemma2},
    {"gemma3_text", describe_gemma3},
    {"glm4", describe_glm4},
    {"granite", describe_granite},
    {"llama", describe_llama},
    {"minicpm", describe_minicpm},
    {"olmo2", describe_olmo2},
    {"phi3", describe_phi3},
    {"qwen2", describe_qwen2},
    {"qwen3", describe_qwen3},
    {"smollm3", describe_smollm3},
    {"starcoder2", describe_starcoder2},
};

}  // namespace

const Json& text_config(const Json& config) {
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? *text : config;
}

Result<int> rotary_dims(const Json& config, int head_dim, double default_part) {
  TENON_TRY(const double part,
            json_number_or(config, "partial_rotary_factor", kConfig, default_part));
  if (!(part > 0 && part <= 1))
    return invalid("{} partial_rotary_factor {} is outside 0..1", kConfig, part)
        .at("partial_rotary_factor");
  return static_cast<int>(head_dim * part);
}

Result<RopeRequest> describe_rope(const Json& config, int dims, double default_base,
                                  bool default_traditional) {
  RopeRequest rope;
  rope.dims = dims;
  const auto object = [&](const char* key) -> Result<Json> {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) return Json();
    if (!it->is_object()) return invalid("config.json {} must be an object", key);
    return *it;
  };
  TENON_TRY(const Json parameters, object("rope_parameters"));
  TENON_TRY(rope.scaling, object("rope_scaling"));
  if (rope.scaling.is_null()) rope.scaling = parameters;
  TENON_TRY(rope.base, json_number_or(parameters, "rope_theta", kConfig, default_base));
  TENON_TRY(rope.base, json_number_or(config, "rope_theta", kConfig, rope.base));
  if (!(rope.base > 1 && rope.base < 1e30))
    return invalid("config.json rope_theta {} must be above 1", rope.base);
  TENON_TRY(rope.traditional,
            json_bool_or(config, "rope_traditional", kConfig, default_traditional));
  TENON_TRY(rope.max_positions, size_or(config, "max_position_embeddings", rope.max_positions));
  return rope;
}

Result<DecoderSpec> describe_llama(const Json& config) {
  TENON_TRY(const double rotary, json_number_or(config, "partial_rotary_factor", kConfig, 1));
  if (rotary != 1)
    return unsupported("config.json partial_rotary_factor {}: this graph rotates whole heads",
                       rotary);
  DecoderSpec spec;
  TENON_TRY(spec.hidden_size, size_of(config, "hidden_size"));
  TENON_TRY(const int64_t layers, json_int(config, "num_hidden_layers", kConfig, 1, 10000));
  spec.num_layers = static_cast<int>(layers);
  TENON_TRY(spec.ffn_size, size_of(config, "intermediate_size"));
  TENON_TRY(spec.num_heads, size_of(config, "num_attention_heads"));
  TENON_TRY(spec.num_kv_heads, size_or(config, "num_key_value_heads", spec.num_heads));
  TENON_TRY(const int head_dim, size_or(config, "head_dim", spec.hidden_size / spec.num_heads));
  set_head_dim(spec, head_dim);
  TENON_TRY(spec.vocab_size, size_of(config, "vocab_size"));
  if (spec.num_heads % spec.num_kv_heads != 0)
    return invalid("config.json: {} attention heads are not a multiple of {} key/value heads",
                   spec.num_heads, spec.num_kv_heads);
  TENON_TRY(const double eps, json_number(config, "rms_norm_eps", kConfig));
  if (!(eps >= 0 && eps < 1)) return invalid("config.json rms_norm_eps {} must be in [0, 1)", eps);
  spec.norm.eps = static_cast<float>(eps);
  TENON_TRY(spec.qkv_bias, json_bool_or(config, "attention_bias", kConfig, false));
  spec.o_bias = spec.qkv_bias;
  TENON_TRY(spec.ffn_bias, json_bool_or(config, "mlp_bias", kConfig, false));
  TENON_TRY(spec.tied, json_bool_or(config, "tie_word_embeddings", kConfig, true));
  TENON_OK(describe_windows(config, spec));
  TENON_OK(describe_context(config, spec));
  TENON_TRY(spec.rope, describe_rope(config, spec.head_dim, 10000));
  return spec;
}

Result<DecoderSpec> describe(std::string_view model_type, const Json& config) {
  for (const Descriptor& descriptor : kDescriptors) {
    if (model_type != descriptor.type) continue;
    const bool gemma = model_type.starts_with("gemma");
    if (model_type != "starcoder2") {
      TENON_OK(
          gemma ? require_activation(config, {"gelu_pytorch_tanh", "gelu", "gelu_new", "gelu_fast"})
                : require_activation(config, {"silu", "swish"}));
    }
    return descriptor.describe(config);
  }
  return unsupported("model_type '{}' has no universal-dense descriptor", model_type);
}

}  // namespace tenon::graph

// Gemma, Gemma 2 and Gemma 3 as descriptors. Source: mlx-lm 0.32.2 models/gemma.py, gemma2.py,
// gemma3_text.py.
#include <cmath>

#include "graph/config_fields.h"
#include "graph/descriptors.h"

namespace tenon::graph {

namespace {

// gemma, gemma2 and gemma3 in common: norms store their distance from one, embeddings are scaled,
// the head is the embedding.
Result<DecoderSpec> describe_any_gemma(const Json& config) {
  Json full = config;
  if (!full.contains("rms_norm_eps")) full["rms_norm_eps"] = 1e-6;
  TENON_TRY(DecoderSpec spec, describe_llama(full));
  spec.norm.plus_one = true;
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = false;
  spec.tied = true;
  spec.activation = ops::Activation::gelu_tanh;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden_size)));
  return spec;
}

void sandwich(DecoderSpec& spec) {
  spec.attention_post_norm = "post_attention_layernorm";
  spec.ffn_norm = "pre_feedforward_layernorm";
  spec.ffn_post_norm = "post_feedforward_layernorm";
}

}  // namespace

Result<DecoderSpec> describe_gemma(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_any_gemma(config));
  TENON_OK(plain_rope_only(spec));
  spec.activation = ops::Activation::gelu;
  return spec;
}

Result<DecoderSpec> describe_gemma2(const Json& config) {
  TENON_TRY(DecoderSpec spec, describe_any_gemma(config));
  TENON_OK(plain_rope_only(spec));
  sandwich(spec);
  const auto number = [&](const char* key, double fallback) {
    return json_number_or(config, key, kConfig, fallback);
  };
  TENON_TRY(const double score_cap, number("attn_logit_softcapping", 50));
  TENON_TRY(const double logits_cap, number("final_logit_softcapping", 30));
  TENON_TRY(const double query_scalar, number("query_pre_attn_scalar", 144));
  if (!(score_cap > 0 && logits_cap > 0 && query_scalar > 0))
    return invalid("config.json: the soft caps and query_pre_attn_scalar must be above 0");
  spec.score_softcap = static_cast<float>(score_cap);
  spec.logits_softcap = static_cast<float>(logits_cap);
  spec.attention_scale = 1.0 / std::sqrt(query_scalar);
  return spec;
}

// Every field has a default.
Result<DecoderSpec> describe_gemma3(const Json& config) {
  Json full = {{"hidden_size", 1152},       {"num_hidden_layers", 26},
               {"intermediate_size", 6912}, {"num_attention_heads", 4},
               {"head_dim", 256},           {"vocab_size", 262144},
               {"num_key_value_heads", 1},  {"rope_theta", 1e6},
               {"sliding_window", 512},     {"max_position_embeddings", 32768}};
  for (const auto& [key, value] : config.items()) full[key] = value;
  full.erase("layer_types");  // the pattern below decides
  TENON_TRY(DecoderSpec spec, describe_any_gemma(full));
  sandwich(spec);
  spec.head_norms = DecoderSpec::HeadNorms::each;
  // The oracle rounds the factor to bfloat16 first.
  spec.embedding_scale = static_cast<float>(mx::bfloat16_t(*spec.embedding_scale));
  TENON_TRY(const double query_scalar, json_number_or(full, "query_pre_attn_scalar", kConfig, 256));
  if (!(query_scalar > 0))
    return invalid("config.json query_pre_attn_scalar must be above 0").at("query_pre_attn_scalar");
  spec.attention_scale = std::pow(query_scalar, -0.5);
  TENON_TRY(const int pattern, size_or(full, "sliding_window_pattern", 6));
  TENON_TRY(const int window, size_of(full, "sliding_window"));
  TENON_TRY(const double local_base, json_number_or(full, "rope_local_base_freq", kConfig, 1e4));
  spec.local_rope = RopeRequest{spec.head_dim, local_base, false, {}, 2048};
  const auto types = config.find("layer_types");
  for (int i = 0; i < spec.num_layers; ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.local_rope = (i + 1) % pattern != 0;
    layer.window = layer.local_rope ? window : 0;
    const char* type = layer.local_rope ? "sliding_attention" : "full_attention";
    if (types != config.end() && types->is_array() && i < static_cast<int>(types->size()) &&
        (*types)[i] != type)
      return unsupported(
          "config.json layer_types: layer {} is not what sliding_window_pattern {} "
          "makes it",
          i, pattern);
  }
  TENON_OK(describe_context(full, spec));
  return spec;
}

}  // namespace tenon::graph

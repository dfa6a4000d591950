#include "graph/gemma4_config.h"

#include "graph/descriptors.h"

namespace tenon::graph {

namespace {

constexpr const char* kWhere = "config.json";

Result<int> size_or(const Json& config, const char* key, int fallback, int min = 1) {
  TENON_TRY(const int64_t n, json_int_or(config, key, kWhere, fallback, min, 1 << 24));
  return static_cast<int>(n);
}

Status read_sizes(const Json& config, Gemma4Config& c) {
  TENON_TRY(c.hidden_size, size_or(config, "hidden_size", 1536));
  TENON_TRY(c.num_layers, size_or(config, "num_hidden_layers", 35));
  if (c.num_layers > 10000) return invalid("config.json num_hidden_layers {}", c.num_layers);
  TENON_TRY(c.ffn_size, size_or(config, "intermediate_size", 6144));
  TENON_TRY(c.num_heads, size_or(config, "num_attention_heads", 8));
  TENON_TRY(c.context_len, size_or(config, "max_position_embeddings", 131072));
  TENON_TRY(const double eps, json_number_or(config, "rms_norm_eps", kWhere, 1e-6));
  if (!(eps >= 0 && eps < 1)) return invalid("config.json rms_norm_eps {} must be in [0, 1)", eps);
  c.norm_eps = static_cast<float>(eps);
  TENON_TRY(c.tied, json_bool_or(config, "tie_word_embeddings", kWhere, true));
  const auto cap = config.find("final_logit_softcapping");
  const bool none = cap != config.end() && cap->is_null();
  TENON_TRY(const double softcap, json_number_or(config, "final_logit_softcapping", kWhere, 30));
  if (!(softcap > 0)) return invalid("config.json final_logit_softcapping must be above 0");
  c.logits_softcap = none ? 0.0f : static_cast<float>(softcap);
  return {};
}

Status read_attention(const Json& config, Gemma4Config& c) {
  TENON_TRY(c.window, size_or(config, "sliding_window", 512));
  TENON_TRY(c.sliding_head_dim, size_or(config, "head_dim", 256));
  TENON_TRY(const int global, size_or(config, "global_head_dim", 512, 0));
  c.full_head_dim = global > 0 ? global : c.sliding_head_dim;
  TENON_TRY(c.sliding_kv_heads, size_or(config, "num_key_value_heads", 1));
  TENON_TRY(c.keys_as_values, json_bool_or(config, "attention_k_eq_v", kWhere, false));
  TENON_TRY(const int global_heads, size_or(config, "num_global_key_value_heads", 0, 0));
  c.full_kv_heads = c.keys_as_values && global_heads > 0 ? global_heads : c.sliding_kv_heads;
  for (const int heads : {c.sliding_kv_heads, c.full_kv_heads})
    if (c.num_heads % heads != 0)
      return invalid("config.json: {} attention heads are not a multiple of {} key/value heads",
                     c.num_heads, heads);
  TENON_TRY(c.num_shared, size_or(config, "num_kv_shared_layers", 20, 0));
  TENON_TRY(const bool wide, json_bool_or(config, "use_double_wide_mlp", kWhere, true));
  c.double_wide = wide && c.num_shared < c.num_layers;
  return {};
}

Status read_layer_types(const Json& config, Gemma4Config& c) {
  TENON_TRY(const int pattern, size_or(config, "sliding_window_pattern", 5));
  const auto types = config.find("layer_types");
  const bool given = types != config.end() && types->is_array();
  if (given && static_cast<int>(types->size()) < c.num_layers)
    return invalid("config.json layer_types must list {} layers", c.num_layers).at("layer_types");
  for (int i = 0; i < c.num_layers; ++i) {
    if (given && (*types)[i] != "full_attention" && (*types)[i] != "sliding_attention")
      return unsupported("config.json layer_types[{}] is not built here", i);
    c.sliding.push_back(given ? (*types)[i] == "sliding_attention" : (i + 1) % pattern != 0);
  }
  for (int i = c.num_layers - c.num_shared; i < c.num_layers; ++i)
    if (i < 0 || c.donor(i) < 0)
      return invalid(
                 "config.json num_kv_shared_layers {}: layer {} has no earlier layer of its "
                 "kind to share with",
                 c.num_shared, i)
          .at("num_kv_shared_layers");
  return {};
}

Result<RopeRequest> read_rope(const Json& config, const char* kind, int head_dim,
                              const Json& fallback, int positions) {
  const auto all = config.find("rope_parameters");
  const bool given = all != config.end() && all->is_object();
  const Json& parameters = given ? all->value(kind, Json::object()) : fallback;
  RopeRequest rope{head_dim, 10000, false, parameters, positions};
  TENON_TRY(rope.base, json_number_or(parameters, "rope_theta", kWhere, 10000));
  TENON_TRY(rope.traditional, json_bool_or(config, "rope_traditional", kWhere, false));
  return rope;
}

Status read_extras(const Json& config, Gemma4Config& c) {
  TENON_TRY(c.own_width, size_or(config, "hidden_size_per_layer_input", 256, 0));
  TENON_TRY(c.own_vocab_size, size_or(config, "vocab_size_per_layer_input", 262144));
  TENON_TRY(const bool mixture, json_bool_or(config, "enable_moe_block", kWhere, false));
  if (!mixture) return {};
  TENON_TRY(const int64_t num, json_int(config, "num_experts", kWhere, 1, 1 << 16));
  TENON_TRY(const int64_t top_k, json_int(config, "top_k_experts", kWhere, 1, num));
  TENON_TRY(const int64_t width, json_int(config, "moe_intermediate_size", kWhere, 1, 1 << 24));
  c.num_experts = static_cast<int>(num);
  c.top_k = static_cast<int>(top_k);
  c.expert_width = static_cast<int>(width);
  return {};
}

}  // namespace

int Gemma4Config::ffn_width(int layer) const {
  return double_wide && is_shared(layer) ? 2 * ffn_size : ffn_size;
}

int Gemma4Config::donor(int layer) const {
  if (!is_shared(layer)) return layer;
  int i = num_layers - num_shared - 1;
  while (i >= 0 && sliding[i] != sliding[layer]) --i;
  return i;
}

Result<Gemma4Config> read_gemma4_config(const Json& stored) {
  Json config = text_config(stored);
  // The multimodal wrapper's own vocabulary size counts.
  if (&text_config(stored) != &stored && stored.contains("vocab_size"))
    config["vocab_size"] = stored["vocab_size"];
  Gemma4Config c;
  TENON_OK(read_sizes(config, c));
  TENON_TRY(c.vocab_size, size_or(config, "vocab_size", 262144));
  TENON_OK(read_attention(config, c));
  TENON_OK(read_layer_types(config, c));
  TENON_OK(read_extras(config, c));
  const Json full = {
      {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}, {"rope_type", "proportional"}};
  const Json sliding = {{"rope_theta", 1e4}, {"rope_type", "default"}};
  TENON_TRY(c.full_rope, read_rope(config, "full_attention", c.full_head_dim, full, c.context_len));
  TENON_TRY(c.sliding_rope,
            read_rope(config, "sliding_attention", c.sliding_head_dim, sliding, c.context_len));
  return c;
}

Status settle_gemma4_names(checkpoint::Weights& weights, const Gemma4Config& c) {
  for (const char* part : {"vision_tower", "multi_modal_projector", "audio_tower", "embed_audio",
                           "embed_vision", "vision_embedder", "self_attn.rotary_emb", "input_max",
                           "input_min", "output_max", "output_min"})
    weights.drop(part);
  TENON_OK(weights.rename_prefix("model.language_model.", "model."));
  TENON_OK(weights.rename_prefix("language_model.model.", "model."));
  TENON_OK(weights.rename_prefix("language_model.lm_head.", "lm_head."));
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    if (c.is_shared(i))
      for (const char* part : {"k_proj", "v_proj", "k_norm"})
        weights.drop(at + "self_attn." + part);
    // Published checkpoints hold experts without ".weight".
    for (const char* part : {"gate_up_proj", "down_proj"})
      if (weights.has(at + "experts." + part))
        TENON_OK(weights.rename_prefix(at + "experts." + part,
                                       at + "experts.switch_glu." + part + ".weight"));
  }
  if (c.tied) weights.drop("lm_head.");
  return {};
}

}  // namespace tenon::graph

#include "graph/qwen35.h"

namespace tenon::graph {

namespace {

constexpr const char* kWhere = "config.json";

Status read_delta(const Json& config, ops::DeltaShape& s) {
  const auto size = [&](const char* key, int fallback) {
    return json_int_or(config, key, kWhere, fallback, 1, 1 << 16);
  };
  TENON_TRY(s.num_k_heads, size("linear_num_key_heads", 16));
  TENON_TRY(s.num_v_heads, size("linear_num_value_heads", 64));
  TENON_TRY(s.k_dim, size("linear_key_head_dim", 192));
  TENON_TRY(s.v_dim, size("linear_value_head_dim", 128));
  TENON_TRY(s.taps, json_int_or(config, "linear_conv_kernel_dim", kWhere, 4, 2, 8));
  if (s.num_v_heads % s.num_k_heads != 0)
    return invalid(
               "config.json: linear_num_value_heads {} is not a multiple of "
               "linear_num_key_heads {}",
               s.num_v_heads, s.num_k_heads)
        .at("linear_num_value_heads");
  TENON_TRY(const std::string gate, json_string_or(config, "output_gate_type", kWhere, "swish"));
  if (gate != "swish" && gate != "silu")
    return unsupported("config.json output_gate_type '{}': this graph has swish", gate);
  return {};
}

}  // namespace

Result<Qwen35Config> read_qwen35_config(const Json& stored) {
  Json config = {{"hidden_size", 4096},        {"num_hidden_layers", 32},
                 {"intermediate_size", 14336}, {"num_attention_heads", 32},
                 {"num_key_value_heads", 8},   {"rms_norm_eps", 1e-6},
                 {"vocab_size", 151936},       {"tie_word_embeddings", false}};
  for (const auto& [key, value] : stored.items()) config[key] = value;
  config.erase("layer_types");  // full_attention_interval says the same
  const Json rope = config.value("rope_parameters", Json::object());
  config.erase("partial_rotary_factor");
  // Where these parameters are stated they alone count; other families let the older fields win.
  if (!rope.empty())
    for (const char* older : {"rope_theta", "rope_scaling"}) config.erase(older);
  Qwen35Config c;
  TENON_TRY(c.dense, describe_llama(config));
  TENON_TRY(const int dims, rotary_dims(rope, c.dense.head_dim, 0.25));
  TENON_TRY(c.dense.rope, describe_rope(config, dims, 100000));
  c.dense.ffn_bias = false;
  TENON_TRY(c.interval, json_int_or(config, "full_attention_interval", kWhere, 4, 1, 10000));
  TENON_TRY(const int64_t experts, json_int_or(config, "num_experts", kWhere, 0));
  if (experts != 0) return unsupported("config.json num_experts {}: this graph has none", experts);
  TENON_OK(read_delta(config, c.delta));
  return c;
}

Result<GatedMixer> load_gated_mixer(Loader& loader, const std::string& at, const DecoderSpec& d,
                                    const NormKind& norm) {
  const int q_dim = d.num_heads * d.head_dim, kv_dim = d.num_kv_heads * d.head_dim;
  GatedMixer mixer;
  ops::QkvProjection& p = mixer.projection;
  p.num_heads = d.num_heads, p.num_kv_heads = d.num_kv_heads, p.head_dim = d.head_dim;
  p.gated = true;
  mixer.how = {static_cast<float>(d.attention_scale)};
  TENON_TRY(p.norm, loader.norm(at + "input_layernorm", d.hidden_size, norm));
  TENON_TRY(p.q, loader.matrix(at + "self_attn.q_proj", 2 * q_dim, d.hidden_size, d.qkv_bias));
  TENON_TRY(p.k, loader.matrix(at + "self_attn.k_proj", kv_dim, d.hidden_size, d.qkv_bias));
  TENON_TRY(p.v, loader.matrix(at + "self_attn.v_proj", kv_dim, d.hidden_size, d.qkv_bias));
  TENON_TRY(p.q_norm, loader.norm(at + "self_attn.q_norm", d.head_dim, norm));
  TENON_TRY(p.k_norm, loader.norm(at + "self_attn.k_norm", d.head_dim, norm));
  TENON_TRY(mixer.o, loader.matrix(at + "self_attn.o_proj", d.hidden_size, q_dim, d.o_bias));
  return mixer;
}

mx::array attend_gated(const ops::Kernels& kernels, const GatedMixer& mixer,
                       cache::LayerCache& cache, const mx::array& h, ops::Rows rows,
                       const ops::Rope& rope) {
  const ops::Qkv qkv = kernels.project_qkv(h, mixer.projection, rows, &rope);
  const mx::array out = cache.attend(qkv, rows, mixer.how);
  return kernels.linear_add(out, *mixer.o, h, {}, &*qkv.gate);
}

Result<ops::FeedForward> load_gated_feed_forward(Loader& loader, const std::string& at,
                                                 const DecoderSpec& d, const NormKind& norm) {
  ops::FeedForward f;
  TENON_TRY(f.norm, loader.norm(at + "post_attention_layernorm", d.hidden_size, norm));
  TENON_TRY(f.mlp.gate, loader.matrix(at + "mlp.gate_proj", d.ffn_size, d.hidden_size));
  TENON_TRY(f.mlp.up, loader.matrix(at + "mlp.up_proj", d.ffn_size, d.hidden_size));
  TENON_TRY(f.mlp.down, loader.matrix(at + "mlp.down_proj", d.hidden_size, d.ffn_size));
  return f;
}

bool norms_from_one(const checkpoint::Weights& weights) {
  const auto conv = weights.find("model.layers.0.linear_attn.conv1d.weight");
  return conv && conv->shape.size() == 3 && conv->shape.back() != 1;
}

}  // namespace tenon::graph

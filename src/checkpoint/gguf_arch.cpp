// The table of GGUF architectures. A new one is its rows here and an entry in kArchs.
// Key and tensor names: https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py
#include "checkpoint/gguf_model.h"

namespace tenon::checkpoint {

namespace {

using Kind = GgufKey::Kind;

// Bounds far above any model, so that a damaged value is refused here and not by an allocation.
constexpr int64_t kLayersMax = 10'000, kHeadsMax = 65'536, kWidthMax = 1 << 24,
                  kContextMax = 1 << 30;

constexpr GgufKey kLlamaKeys[] = {
    {"embedding_length", "hidden_size", Kind::integer, true, kWidthMax},
    {"block_count", "num_hidden_layers", Kind::integer, true, kLayersMax},
    {"feed_forward_length", "intermediate_size", Kind::integer, true, kWidthMax},
    {"attention.head_count", "num_attention_heads", Kind::integer, true, kHeadsMax},
    {"attention.head_count_kv", "num_key_value_heads", Kind::integer, false, kHeadsMax},
    {"attention.key_length", "head_dim", Kind::integer, false, kWidthMax},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true, 0},
    {"context_length", "max_position_embeddings", Kind::integer, true, kContextMax},
    {"rope.freq_base", "rope_theta", Kind::number, false, 0},
};
constexpr GgufOnly kLlamaOnly[] = {{"expert_count", 0}, {"attention.sliding_window", 0}};
constexpr GgufOnly kWindowOnly[] = {{"attention.sliding_window", 0}};

// Head width, window and the base of its global layers; the rest is the graph's own default.
constexpr GgufKey kGemma3Keys[] = {
    {"embedding_length", "hidden_size", Kind::integer, true, kWidthMax},
    {"block_count", "num_hidden_layers", Kind::integer, true, kLayersMax},
    {"feed_forward_length", "intermediate_size", Kind::integer, true, kWidthMax},
    {"attention.head_count", "num_attention_heads", Kind::integer, true, kHeadsMax},
    {"attention.head_count_kv", "num_key_value_heads", Kind::integer, false, kHeadsMax},
    {"attention.key_length", "head_dim", Kind::integer, true, kWidthMax},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true, 0},
    {"attention.sliding_window", "sliding_window", Kind::integer, true, kContextMax},
    {"context_length", "max_position_embeddings", Kind::integer, true, kContextMax},
    {"rope.freq_base", "rope_theta", Kind::number, false, 0},
};
constexpr GgufKey kQwen3MoeKeys[] = {
    {"embedding_length", "hidden_size", Kind::integer, true, kWidthMax},
    {"block_count", "num_hidden_layers", Kind::integer, true, kLayersMax},
    {"feed_forward_length", "intermediate_size", Kind::integer, true, kWidthMax},
    {"expert_count", "num_experts", Kind::integer, true, kHeadsMax},
    {"expert_used_count", "num_experts_per_tok", Kind::integer, true, kHeadsMax},
    {"expert_feed_forward_length", "moe_intermediate_size", Kind::integer, true, kWidthMax},
    {"attention.head_count", "num_attention_heads", Kind::integer, true, kHeadsMax},
    {"attention.head_count_kv", "num_key_value_heads", Kind::integer, false, kHeadsMax},
    {"attention.key_length", "head_dim", Kind::integer, true, kWidthMax},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", Kind::number, true, 0},
    {"context_length", "max_position_embeddings", Kind::integer, true, kContextMax},
    {"rope.freq_base", "rope_theta", Kind::number, false, 0},
};

constexpr GgufName kDecoderNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"rope_freqs", "rope_freqs"},
};
constexpr GgufName kLlamaBlockNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufName kQwen3BlockNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.switch_mlp.gate_proj"},
    {"ffn_up_exps", "mlp.switch_mlp.up_proj"},
    {"ffn_down_exps", "mlp.switch_mlp.down_proj"},
};
constexpr GgufName kGemma3BlockNames[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_output", "self_attn.o_proj"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

constexpr GgufArch kArchs[] = {
    {"llama", "llama", true, kLlamaKeys, kLlamaOnly, kDecoderNames, kLlamaBlockNames, "{}"},
    {"qwen2", "qwen2", false, kLlamaKeys, kLlamaOnly, kDecoderNames, kLlamaBlockNames, "{}"},
    {"qwen3", "qwen3", false, kLlamaKeys, kLlamaOnly, kDecoderNames, kQwen3BlockNames, "{}"},
    {"qwen3moe", "qwen3_moe", false, kQwen3MoeKeys, kWindowOnly, kDecoderNames, kQwen3BlockNames,
     R"({"norm_topk_prob": true})"},
    {"gemma3", "gemma3_text", false, kGemma3Keys, {}, kDecoderNames, kGemma3BlockNames, "{}"},
};

}  // namespace

std::span<const GgufArch> gguf_archs() { return kArchs; }

}  // namespace tenon::checkpoint

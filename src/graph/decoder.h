// The decoder that most families are: blocks of attention and feed-forward (dense or a mixture of
// experts) around a residual stream, each with a norm before, after, or both.
//
//   h = embed(ids) * embedding_scale
//   each layer:  h += residual_scale * post_norm(o(attend(rope(norm(q)), rope(norm(k)), v)))
//                h += residual_scale * post_norm(feed_forward(norm(h)))
//   logits = softcap(head(norm(h) / hidden_divisor) / logits_divisor)
//
// A family states what it is as a DecoderSpec and calls build_decoder. Tensor names are Hugging
// Face's. Units: tokens.
#pragma once
#include "graph/loader.h"
#include "graph/rope.h"

namespace tenon::graph {

struct MixtureSpec {
  int num_experts = 0, top_k = 0, ffn_size = 0;
  bool renormalize = false;
};

// What may differ from layer to layer.
struct LayerSpec {
  bool rotates = true;
  bool local_rope = false;  // DecoderSpec::local_rope instead of rope
  int window = 0;           // tokens seen, itself included; 0: all
  bool mixture = false;     // a mixture of experts instead of the dense feed-forward
};

struct DecoderSpec {
  int hidden_size = 0, num_layers = 0, ffn_size = 0, vocab_size = 0, context_len = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool tied = false;
  std::vector<LayerSpec> layers;

  NormKind norm;
  // A layer's norms by their tensors' names; empty: none at that place.
  std::string attention_norm = "input_layernorm", attention_post_norm;
  std::string ffn_norm = "post_attention_layernorm", ffn_post_norm;

  bool qkv_bias = false, o_bias = false, fused_qkv = false;
  enum class HeadNorms { none, each, whole } head_norms = HeadNorms::none;
  double attention_scale = 0;
  float score_softcap = 0;  // 0: none
  RopeRequest rope;
  std::optional<RopeRequest> local_rope;

  bool ffn_bias = false, fused_gate_up = false;
  bool gated = true;  // else up, activation, down
  std::string up = "mlp.up_proj", down = "mlp.down_proj";
  ops::Activation activation = ops::Activation::silu;
  MixtureSpec mixture;

  std::optional<float> embedding_scale, residual_scale, hidden_divisor, logits_divisor;
  float logits_softcap = 0;  // 0: none
};

Result<std::unique_ptr<Model>> build_decoder(const DecoderSpec& spec, checkpoint::Weights& weights,
                                             const BuildOptions& options);

}  // namespace tenon::graph

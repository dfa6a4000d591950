// What a Gemma 4 config says, layer by layer, and the names its writers give to tensors.
// Source: mlx-lm 0.32.2 models/gemma4.py, gemma4_text.py (ModelArgs, sanitize). Units: tokens.
#pragma once
#include "graph/loader.h"
#include "graph/rope.h"

namespace tenon::graph {

struct Gemma4Config {
  int hidden_size = 0, num_layers = 0, ffn_size = 0, num_heads = 0, vocab_size = 0, context_len = 0;
  float norm_eps = 0;
  bool tied = true;
  float logits_softcap = 0;  // 0: none

  std::vector<bool> sliding;  // by layer
  int window = 0;
  int sliding_head_dim = 0, full_head_dim = 0;
  int sliding_kv_heads = 0, full_kv_heads = 0;
  bool keys_as_values = false;  // in full layers
  int num_shared = 0;           // last layers that attend to the keys of earlier ones
  bool double_wide = false;     // these have feed-forwards of twice the width
  RopeRequest full_rope, sliding_rope;

  int own_width = 0, own_vocab_size = 0;  // inputs of each layer's own; 0: none
  int num_experts = 0, top_k = 0, expert_width = 0;

  bool is_sliding(int layer) const { return sliding[layer]; }
  int head_dim(int layer) const { return sliding[layer] ? sliding_head_dim : full_head_dim; }
  int kv_heads(int layer) const { return sliding[layer] ? sliding_kv_heads : full_kv_heads; }
  bool values_are_keys(int layer) const { return keys_as_values && !sliding[layer]; }
  bool is_shared(int layer) const { return layer >= num_layers - num_shared; }
  int ffn_width(int layer) const;
  // The layer whose keys this one attends to: itself, or the last of its kind that has any.
  int donor(int layer) const;
};

Result<Gemma4Config> read_gemma4_config(const Json& config);
// Brings all names under "model." and drops what is not text or not used.
Status settle_gemma4_names(checkpoint::Weights& weights, const Gemma4Config& config);

}  // namespace tenon::graph

#include "profile/predicates.h"

#include "base/check.h"
#include "profile/descriptors.h"

namespace tenon::profile {

namespace {

bool flag(const Json* value) { return value && value->is_boolean() && value->get<bool>(); }

// A llama with exactly MiniCPM5-1B's dimensions that says its head is its own.
bool is_minicpm5(const ConfigView& view) {
  const Json& text = *view.text;
  const Json* tied = given(text, "tie_word_embeddings");
  if (!tied) tied = given(*view.raw, "tie_word_embeddings");
  return view.model_type == "llama" && number_or(text, "hidden_size", 0) == 1536 &&
         number_or(text, "num_hidden_layers", 0) == 24 &&
         number_or(text, "num_attention_heads", 0) == 16 &&
         number_or(text, "num_key_value_heads", 0) == 2 && number_or(text, "head_dim", 0) == 128 &&
         number_or(text, "vocab_size", 0) == 130560 && tied && tied->is_boolean() &&
         !tied->get<bool>();
}

bool is_qwen35_type(std::string_view type) { return type == "qwen3_5" || type == "qwen3_5_text"; }

std::optional<std::string> qwen35_obstacle(const ConfigView& view) {
  const Json& text = *view.text;
  const auto shown = [&](const char* key) {
    const Json* value = field(text, key);
    return value ? dump_json(*value) : "absent";
  };
  if (flag(given(text, "enable_moe_block")))
    return "qwen3.5 with enable_moe_block is a mixture of experts, which its graph does not run";
  if (!(number_or(text, "num_experts", 0) == 0))
    return fmt::format("qwen3.5 runs dense models only: num_experts is {}, must be 0",
                       shown("num_experts"));
  for (const char* key : {"linear_num_value_heads", "full_attention_interval"})
    if (!(number_or(text, key, 0) > 0))
      return fmt::format("qwen3.5 needs {} above 0; it is {}", key, shown(key));
  return std::nullopt;
}

}  // namespace

bool graph_accepts(Graph graph, const ConfigView& view) {
  switch (graph) {
    case Graph::gemma4: return view.model_type.starts_with("gemma4");
    case Graph::minicpm5: return is_minicpm5(view);
    case Graph::qwen35: return is_qwen35_type(view.model_type) && !qwen35_obstacle(view);
    case Graph::qwen3: return view.model_type == "qwen3";
    case Graph::qwen3_moe: return view.model_type == "qwen3_moe";
    case Graph::diffusion_gemma: return view.model_type == "diffusion_gemma";
    case Graph::bert_encoder: return view.model_type == "bert";
    case Graph::glm52: return view.model_type == "glm_moe_dsa";
    case Graph::universal_dense:
      return has_descriptor(remap_model_type(view.model_type)) && parse_descriptor(view).ok();
  }
  CHECK(false, "graph {}", static_cast<int>(graph));
  return false;
}

std::optional<std::string> near_miss(const ConfigView& view) {
  return is_qwen35_type(view.model_type) ? qwen35_obstacle(view) : std::nullopt;
}

bool is_drafter(std::string_view model_type) {
  return model_type.ends_with("_assistant") || model_type.ends_with("_mtp");
}

}  // namespace tenon::profile

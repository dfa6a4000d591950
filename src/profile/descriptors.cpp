#include "profile/descriptors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "profile/profile.h"

namespace tenon::profile {

namespace {

using Remarks = std::vector<std::string>;
using Fields = std::vector<std::string_view>;

constexpr int64_t kLayersMax = 1 << 16, kSizeMax = int64_t{1} << 31;

struct Descriptor {
  std::string_view type;
  Fields sizes;    // whole numbers above 0 that must be there
  Fields numbers;  // numbers that must be there
  Status (*rules)(const ConfigView&, Remarks&) = nullptr;
};

// 1 = this layer has RoPE, 0 = it has none.
Status smollm3_rules(const ConfigView& view, Remarks&) {
  TENON_OK(json_int_or(*view.text, "no_rope_layer_interval", view.where, 4, 1, kLayersMax));
  const Json* list = given(*view.text, "no_rope_layers");
  if (!list) return {};
  TENON_TRY(const int64_t layers, json_int(*view.text, "num_hidden_layers", view.where));
  if (!list->is_array() || static_cast<int64_t>(list->size()) != layers)
    return invalid(
               "`no_rope_layers` length mismatch: {}.no_rope_layers must be a list of {} entries "
               "(num_hidden_layers), one per layer, and {}",
               view.where, layers,
               list->is_array() ? fmt::format("has {}", list->size()) : "is not a list")
        .at("no_rope_layers");
  for (const Json& each : *list)
    if (!each.is_number_integer() && !each.is_boolean())
      return invalid("{}.no_rope_layers must hold 0 and 1 only", view.where).at("no_rope_layers");
  return {};
}

Status phi3_rules(const ConfigView& view, Remarks& remarks) {
  const Json* scaling = given(*view.text, "rope_scaling");
  if (!scaling || scaling->empty()) return {};
  for (const char* key : {"long_factor", "type"})
    if (!field(*scaling, key))
      return invalid("{}.rope_scaling must contain keys {{'long_factor', 'type'}}; '{}' is missing",
                     view.where, key)
          .at("rope_scaling");
  const Json& type = *field(*scaling, "type");
  if (type != "longrope" && type != "su" && type != "linear")
    remarks.push_back(
        fmt::format("rope_scaling type {} is not longrope, su or linear: RoPE scaling is "
                    "off, as in mlx-lm",
                    dump_json(type)));
  return {};
}

const std::vector<Descriptor>& descriptors() {
  static const Fields base = {"hidden_size", "num_hidden_layers", "intermediate_size",
                              "num_attention_heads", "vocab_size"};
  static const Fields with_head = [] {
    Fields list = base;
    list.push_back("head_dim");
    return list;
  }();
  static const Fields eps = {"rms_norm_eps"};
  static const std::vector<Descriptor> list = {
      {"gemma", with_head, eps},
      {"gemma2", with_head, eps},
      {"gemma3_text", {}, {}},  // every field has a default
      {"glm4", base, {"rms_norm_eps", "partial_rotary_factor"}},
      {"granite",
       base,
       {"rms_norm_eps", "logits_scaling", "attention_multiplier", "embedding_multiplier",
        "residual_multiplier"}},
      {"llama", base, eps},
      {"minicpm",
       {"hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
        "vocab_size", "dim_model_base"},
       {"rms_norm_eps", "scale_depth", "scale_emb"}},
      {"olmo2", base, eps},
      {"phi3", base, eps, phi3_rules},
      {"qwen2", base, eps},
      // Reached only through an artifact profile: the dedicated graph comes first.
      {"qwen3", with_head, eps},
      {"smollm3", base, eps, smollm3_rules},
      {"starcoder2",
       {"hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads"},
       {}},
  };
  return list;
}

const Descriptor* find_descriptor(std::string_view type) {
  for (const Descriptor& each : descriptors())
    if (each.type == type) return &each;
  return nullptr;
}

// Sizes that are optional somewhere but never zero.
constexpr std::array<std::string_view, 8> kSizes = {
    "hidden_size",         "num_hidden_layers", "intermediate_size", "num_attention_heads",
    "num_key_value_heads", "head_dim",          "vocab_size",        "max_position_embeddings",
};

}  // namespace

std::string remap_model_type(std::string_view model_type) {
  // mlx_lm/utils.py MODEL_REMAPPING (0.32.2), one step only. Targets without a descriptor are here
  // so that a refusal can name the real architecture.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> table = {{
      {"mistral", "llama"},
      {"llava", "mistral3"},
      {"phi-msft", "phixtral"},
      {"falcon_mamba", "mamba"},
      {"joyai_llm_flash", "deepseek_v3"},
      {"kimi_k2", "deepseek_v3"},
      {"qwen2_5_vl", "qwen2_vl"},
      {"minimax_m2", "minimax"},
      {"iquestcoder", "llama"},
      {"xverse", "llama"},
      {"gemma4_unified", "gemma4"},
      {"deepseek_v41_text", "deepseek_v41"},
  }};
  for (const auto& [from, to] : table)
    if (from == model_type) return std::string(to);
  return std::string(model_type);
}

bool has_descriptor(std::string_view remapped_type) { return find_descriptor(remapped_type); }

const std::vector<std::string>& generic_types() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> list;
    for (const Descriptor& each : descriptors()) list.emplace_back(each.type);
    std::ranges::sort(list);
    return list;
  }();
  return types;
}

Result<std::vector<std::string>> parse_descriptor(const ConfigView& view) {
  const Descriptor* descriptor = find_descriptor(remap_model_type(view.model_type));
  CHECK(descriptor, "no descriptor for {}", view.model_type);
  const Json& text = *view.text;
  for (const auto key : descriptor->sizes)
    if (!given(text, key))
      return invalid("{}.{} is missing; a {} config needs it", view.where, key, descriptor->type)
          .at(key);
  for (const auto key : kSizes)
    TENON_OK(json_int_or(text, key, view.where, 1, 1,
                         key == "num_hidden_layers" ? kLayersMax : kSizeMax));
  for (const auto key : descriptor->sizes) TENON_OK(json_int(text, key, view.where, 1, kSizeMax));
  for (const auto key : descriptor->numbers) TENON_OK(json_number(text, key, view.where));
  Remarks remarks;
  if (descriptor->rules) TENON_OK(descriptor->rules(view, remarks));
  return remarks;
}

}  // namespace tenon::profile

// Configs and helpers shared by this room's tests.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "profile/profile.h"

namespace tenon::profile::test {

inline const std::string kRevA = "b04599de95d7a9bfbd7f208d347c0f10d9432a42";
inline const std::string kRevOther = "0123456789abcdef0123456789abcdef01234567";
inline const std::string kPathA =
    "/cache/models--mlx-community--Qwen3.8-27B-OptiQ-4bit/snapshots/" + kRevA;
inline const std::string kPathB =
    "/cache/models--mateogrgic--GLM-5.2-colibri-int4-with-int8-mtp/snapshots/"
    "3cc8db99b1b13fc79325d987ba3c1c430766b3b8";
inline const std::string kPathOther = "/cache/models--org--name/snapshots/" + kRevOther;

inline Json json(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : Json();
}

inline Json with(Json config, const std::string& key, Json value) {
  config[key] = std::move(value);
  return config;
}

inline Json dense(const std::string& type) {
  return Json{{"model_type", type},       {"hidden_size", 128},       {"num_hidden_layers", 4},
              {"intermediate_size", 256}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
              {"rms_norm_eps", 1e-5},     {"vocab_size", 512}};
}

// Every descriptor's type with the least it accepts.
inline Json generic(const std::string& type) {
  Json config = dense(type);
  if (type.starts_with("gemma") || type == "qwen3") config["head_dim"] = 32;
  if (type == "glm4") config["partial_rotary_factor"] = 0.5;
  if (type == "granite")
    for (const char* key :
         {"logits_scaling", "attention_multiplier", "embedding_multiplier", "residual_multiplier"})
      config[key] = 1.0;
  if (type == "minicpm") {
    config["dim_model_base"] = 64;
    config["scale_depth"] = 1.4;
    config["scale_emb"] = 12;
  }
  if (type == "starcoder2") config.erase("rms_norm_eps");
  return config;
}

inline Json minicpm5() {
  return Json{{"model_type", "llama"},     {"hidden_size", 1536},
              {"num_hidden_layers", 24},   {"intermediate_size", 4608},
              {"num_attention_heads", 16}, {"num_key_value_heads", 2},
              {"head_dim", 128},           {"vocab_size", 130560},
              {"rms_norm_eps", 1e-6},      {"tie_word_embeddings", false}};
}

// Profile A's structure, as a real file nests it.
inline Json qwen35_27b() {
  Json layers = Json::array();
  for (int i = 0; i < 64; ++i) layers.push_back(i % 4 == 3 ? "full_attention" : "linear_attention");
  return Json{{"model_type", "qwen3_5"},
              {"text_config",
               {{"model_type", "qwen3_5_text"},
                {"hidden_size", 5120},
                {"num_hidden_layers", 64},
                {"num_attention_heads", 24},
                {"num_key_value_heads", 4},
                {"head_dim", 256},
                {"layer_types", layers},
                {"linear_num_value_heads", 48},
                {"full_attention_interval", 4},
                {"vocab_size", 248320}}}};
}

// Profile B's structure; the misleading head_dim is in some files and must not count.
inline Json glm52() {
  return Json{{"model_type", "glm_moe_dsa"}, {"hidden_size", 6144},       {"num_hidden_layers", 78},
              {"num_attention_heads", 64},   {"num_key_value_heads", 64}, {"head_dim", 192},
              {"qk_nope_head_dim", 192},     {"qk_rope_head_dim", 64},    {"v_head_dim", 256},
              {"n_routed_experts", 256},     {"num_experts_per_tok", 8},  {"vocab_size", 154880}};
}

inline Json gemma4() {
  return Json{{"model_type", "gemma4"},
              {"text_config",
               {{"hidden_size", 128},
                {"num_attention_heads", 4},
                {"num_key_value_heads", 1},
                {"head_dim", 32},
                {"global_head_dim", 64},
                {"sliding_window", 16},
                {"layer_types", {"sliding_attention", "full_attention"}},
                {"final_logit_softcapping", 30.0}}}};
}

inline Manifest manifest(Json config, std::string path = "/models/plain", Json kv = nullptr) {
  return {std::move(path), "safetensors", std::move(config), nullptr, std::move(kv)};
}

inline std::string fingerprint_of(const Json& config, const Json& kv = nullptr) {
  const auto fp = config_fingerprint(config, kv);
  EXPECT_TRUE(fp.ok()) << fp.error().message;
  return fp.ok() ? *fp : "";
}

// An extra artifact profile over the universal graph, bound to this artifact and config.
inline Profile extra(std::string id, std::string artifact, std::string config_fp) {
  return {std::move(id),
          std::move(artifact),
          std::move(config_fp),
          {Tier::l1, Oracle::mlx_lm, Claim::bit_exact},
          {Capability::safetensors, Capability::autoregressive, Capability::universal_dense_graph},
          {Loader::safetensors,
           Graph::universal_dense,
           Loop::autoregressive,
           Specialization::artifact,
           {}}};
}

template <class R>
void expect_error(const R& result, std::string_view code,
                  std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, code) << result.error().message;
  for (const auto part : parts)
    EXPECT_NE(result.error().message.find(part), std::string::npos)
        << "no '" << part << "' in: " << result.error().message;
}

}  // namespace tenon::profile::test

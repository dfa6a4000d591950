// Cases of the profiles specification 12 that the other tests of this room leave partly open; each
// names its number.
#include "profile/fingerprint.h"

#include <functional>

#include "profile/tables.h"
#include "profile/test_configs.h"

namespace tenon::profile {
namespace {
using namespace test;

std::string text_of(const Json& config) {
  const auto text = fingerprint_text(config, nullptr);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  return text.ok() ? *text : "";
}

std::string repeated(int num, const std::function<std::string(int)>& word) {
  std::string list;
  for (int i = 0; i < num; ++i) list += (i ? ",\"" : "\"") + word(i) + "\"";
  return "[" + list + "]";
}

struct BuiltinRow {
  Json config;
  std::string path, id, artifact, fingerprint;
  Fidelity fidelity;
  std::string capabilities;
  Loader loader;
  Graph graph;
};

// Case 2, table 7.1: all fields, not only that they match.
TEST(ProfileCases, BuiltinArtifactsHaveTheFieldsOfTheTable) {
  const BuiltinRow rows[] = {
      {qwen35_27b(), kPathA, "qwen3.8-27b-optiq-4bit",
       "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@b04599de95d7a9bfbd7f208d347c0f10d9432a42",
       "50117975cb405944", Fidelity{Tier::l1, Oracle::mlx_lm, Claim::bit_exact},
       "safetensors, autoregressive, qwen3.5-graph, recurrent-state, vision-sidecar",
       Loader::safetensors, Graph::qwen35},
      {glm52(), kPathB, "glm5.2-colibri-int4-int8-mtp",
       "hf:mateogrgic/GLM-5.2-colibri-int4-with-int8-mtp@3cc8db99b1b13fc79325d987ba3c1c430766b3b8",
       "8b49d0941e18f1b9", Fidelity{Tier::l3, Oracle::none, Claim::measured},
       "colibri-container, autoregressive, glm5.2-graph, streamed-experts", Loader::colibri,
       Graph::glm52}};
  ASSERT_EQ(builtin_artifact_profiles().size(), std::size(rows));
  for (const BuiltinRow& row : rows) {
    const auto r = resolve(manifest(row.config, row.path));
    ASSERT_TRUE(r.ok()) << r.error().message;
    const Profile& p = *r->profile;
    EXPECT_EQ(p.id, row.id);
    EXPECT_TRUE(r->exact_artifact);
    EXPECT_EQ(p.artifact_fingerprint, row.artifact);
    EXPECT_EQ(r->artifact_fingerprint, row.artifact);
    EXPECT_EQ(p.config_fingerprint, row.fingerprint);
    EXPECT_EQ(r->config_fingerprint, row.fingerprint);
    EXPECT_EQ(p.fidelity, row.fidelity) << row.id;
    EXPECT_EQ(join(p.required_capabilities), row.capabilities);
    EXPECT_EQ(p.execution.loader, row.loader);
    EXPECT_EQ(p.execution.graph, row.graph);
    EXPECT_EQ(p.execution.loop, Loop::autoregressive);
    EXPECT_EQ(p.execution.specialization, Specialization::artifact);
    EXPECT_FALSE(p.execution.implementation.has_value());
  }
}

// Case 15: neither the enum's order nor that of the derived list shows through.
TEST(ProfileCases, MissingCapabilitiesFollowTheProfilesOwnOrder) {
  const Json config = dense("llama");
  Profile p = extra("mine", "hf:org/name@" + kRevOther, fingerprint_of(config));
  p.required_capabilities = {Capability::vision_sidecar, Capability::universal_dense_graph,
                             Capability::native_mtp, Capability::safetensors,
                             Capability::autoregressive};
  ResolveOptions options;
  options.extra_artifact_profiles = {&p, 1};
  EXPECT_TRUE(resolve(manifest(config, kPathOther), options).ok());
  options.engine_capabilities = {{Capability::autoregressive, Capability::mixed_precision_kv}};
  expect_error(resolve(manifest(config, kPathOther), options), "profile.E-CAPS",
               {"'mine'", ": vision-sidecar, universal-dense-graph, native-mtp, safetensors;",
                "refusing to fall back"});
}

// Case 20: every name that mlx-lm remaps; those whose target has no descriptor are refused by both.
TEST(ProfileCases, EveryRemapIsNamed) {
  const std::pair<const char*, const char*> remaps[] = {
      {"mistral", "llama"},       {"iquestcoder", "llama"},   {"llava", "mistral3"},
      {"phi-msft", "phixtral"},   {"falcon_mamba", "mamba"},  {"joyai_llm_flash", "deepseek_v3"},
      {"kimi_k2", "deepseek_v3"}, {"qwen2_5_vl", "qwen2_vl"}, {"minimax_m2", "minimax"}};
  for (const auto& [from, to] : remaps) {
    EXPECT_EQ(remap_model_type(from), to);
    const auto r = resolve(manifest(dense(from)));
    if (std::string_view(to) == "llama") {
      ASSERT_TRUE(r.ok()) << from;
      EXPECT_EQ(r->profile->id, "universal-dense");
      EXPECT_EQ(r->model_type, "llama");
    } else {
      expect_error(r, "profile.E-UNSUPPORTED",
                   {fmt::format("\"{}\"", from), fmt::format("\"{}\"", to), "mlx-lm"});
    }
  }
  // gemma4_unified goes by the prefix, not by the remap.
  EXPECT_EQ(resolve(manifest(with(gemma4(), "model_type", "gemma4_unified")))->profile->id,
            "gemma4-dedicated");
  // One step only: a target is not remapped again.
  EXPECT_EQ(remap_model_type("mistral3"), "mistral3");
}

// Case 22: the whole text of the families whose text is compared in part elsewhere.
TEST(ProfileCases, WholeTextOfTheOtherFamilies) {
  const std::string plain_tail =
      R"("attentionKEqV":false,"numKvSharedLayers":0,"enableMoeBlock":false,"numExperts":0,)"
      R"("topKExperts":0,"hiddenSizePerLayerInput":0,"slidingWindow":0,)"
      R"("finalLogitSoftcapping":null,"kvQuant":null})";
  const auto full = [](int) { return std::string("full_attention"); };
  EXPECT_EQ(text_of(minicpm5()),
            R"({"layerTypes":)" + repeated(24, full) +
                R"(,"hiddenSize":1536,"headDim":128,"globalHeadDim":128,"numAttentionHeads":16,)"
                R"("numKeyValueHeads":2,"numGlobalKeyValueHeads":2,)" +
                plain_tail);
  EXPECT_EQ(
      text_of(qwen35_27b()),
      R"({"layerTypes":)" +
          repeated(64, [](int i) { return i % 4 == 3 ? "full_attention" : "linear_attention"; }) +
          R"(,"hiddenSize":5120,"headDim":256,"globalHeadDim":256,"numAttentionHeads":24,)"
          R"("numKeyValueHeads":4,"numGlobalKeyValueHeads":4,)" +
          plain_tail);
  EXPECT_EQ(text_of(glm52()),
            R"({"layerTypes":)" + repeated(78, full) +
                R"(,"hiddenSize":6144,"headDim":256,"globalHeadDim":256,"numAttentionHeads":64,)"
                R"("numKeyValueHeads":64,"numGlobalKeyValueHeads":64,"attentionKEqV":false,)"
                R"("numKvSharedLayers":0,"enableMoeBlock":true,"numExperts":256,"topKExperts":8,)"
                R"("hiddenSizePerLayerInput":0,"slidingWindow":0,"finalLogitSoftcapping":null,)"
                R"("kvQuant":null})");
  // The file may hold no dimension at all.
  EXPECT_EQ(
      text_of(json(R"({"model_type":"diffusion_gemma","canvas_length":256})")),
      R"({"layerTypes":)" +
          repeated(30, [](int i) { return i % 6 == 5 ? "full_attention" : "sliding_attention"; }) +
          R"(,"hiddenSize":2816,"headDim":256,"globalHeadDim":512,"numAttentionHeads":16,)"
          R"("numKeyValueHeads":8,"numGlobalKeyValueHeads":2,"attentionKEqV":false,)"
          R"("numKvSharedLayers":0,"enableMoeBlock":true,"numExperts":128,"topKExperts":8,)"
          R"("hiddenSizePerLayerInput":0,"slidingWindow":1024,"finalLogitSoftcapping":30,)"
          R"("kvQuant":null})");
}

// Case 23: where the table gives a default, absent and null are that default; where a field has a
// fallback in another one, a zero is a value and no absence.
TEST(ProfileCases, NullIsTheDefaultAndZeroIsAValue) {
  const Json base = dense("qwen2");
  const std::string absent = text_of(base);
  for (const char* key :
       {"attention_k_eq_v", "num_kv_shared_layers", "enable_moe_block", "num_experts",
        "top_k_experts", "hidden_size_per_layer_input", "sliding_window", "final_logit_softcapping",
        "head_dim", "global_head_dim", "num_global_key_value_heads", "layer_types"})
    EXPECT_EQ(text_of(with(base, key, nullptr)), absent) << key;
  for (const char* key :
       {"num_kv_shared_layers", "hidden_size_per_layer_input", "sliding_window", "num_experts"})
    EXPECT_EQ(text_of(with(base, key, 0)), absent) << key;
  EXPECT_EQ(text_of(with(base, "attention_k_eq_v", false)), absent);
  EXPECT_EQ(text_of(with(base, "layer_types", Json::array())), absent);
  // Without the flag the numbers of experts do not enter.
  EXPECT_EQ(text_of(with(with(base, "num_experts", 8), "top_k_experts", 2)), absent);

  const auto holds = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  };
  holds(text_of(with(base, "head_dim", 0)), R"("headDim":0,"globalHeadDim":0,)");
  holds(text_of(with(base, "global_head_dim", 0)), R"("headDim":32,"globalHeadDim":0,)");
  holds(text_of(with(base, "num_global_key_value_heads", 0)),
        R"("numKeyValueHeads":2,"numGlobalKeyValueHeads":0,)");
  holds(text_of(with(base, "final_logit_softcapping", 0.0)), R"("finalLogitSoftcapping":0,)");
  Json without = base;
  without.erase("num_attention_heads");
  EXPECT_EQ(text_of(without).find("numAttentionHeads"), std::string::npos);
  holds(text_of(with(base, "hidden_size", nullptr)),
        R"({"layerTypes":[],"hiddenSize":null,"headDim":0,)");
}

}  // namespace
}  // namespace tenon::profile

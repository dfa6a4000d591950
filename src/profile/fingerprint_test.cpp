#include "profile/fingerprint.h"

#include "profile/test_configs.h"

namespace tenon::profile {
namespace {
using namespace test;

std::string text_of(const Json& config, const Json& kv = nullptr) {
  const auto text = fingerprint_text(config, kv);
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
  return text.ok() ? *text : "";
}

std::string identity(std::string_view path) {
  return external_artifact_fingerprint(path).value_or("none");
}

TEST(ProfileCase03, PathIdentitySurvivesSpellingAndPlace) {
  const std::string want = "hf:org/Name@" + kRevOther;
  const std::string tail = "models--org--Name/snapshots/" + kRevOther;
  EXPECT_EQ(identity("/home/u/.cache/hub/" + tail), want);
  EXPECT_EQ(identity(tail), want);
  EXPECT_EQ(identity("/elsewhere/" + tail + "/"), want);
  EXPECT_EQ(identity("/elsewhere/" + tail + "/sub/model.safetensors"), want);
  EXPECT_EQ(identity("C:\\cache\\models--org--Name\\snapshots\\" + kRevOther), want);
  std::string upper = kRevOther;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(identity("/c/MODELS--org--Name/SnapShots/" + upper), want);
  const std::string rev64(64, 'a');
  EXPECT_EQ(identity("/c/models--org--Name/snapshots/" + rev64), "hf:org/Name@" + rev64);
}

TEST(ProfileCase04, PathsWithoutIdentity) {
  const std::string rev = kRevOther;
  EXPECT_EQ(identity(""), "none");
  EXPECT_EQ(identity("/models/plain"), "none");
  EXPECT_EQ(identity("/c/models--org--name/snapshots/main"), "none");
  EXPECT_EQ(identity("/c/models--org--name/snapshots/"), "none");
  EXPECT_EQ(identity("/c/models--org--name/snapshots/" + rev.substr(1)), "none");
  EXPECT_EQ(identity("/c/models--org--name/snapshots/" + std::string(65, 'a')), "none");
  EXPECT_EQ(identity("/c/models--org--name/snapshots/" + std::string(39, 'a') + "g"), "none");
  EXPECT_EQ(identity("/c/models--org--name/x/snapshots/" + rev), "none");
  EXPECT_EQ(identity("/c/models--/snapshots/" + rev), "none");
  EXPECT_EQ(identity("/c/models--solo/snapshots/" + rev), "none");
  EXPECT_EQ(identity("/c/models----x/snapshots/" + rev), "none");
  EXPECT_EQ(identity("/c/models--org--/snapshots/" + rev), "none");
  EXPECT_EQ(identity("/c/xmodels--org--name/snapshots/" + rev), "none");
  // The first snapshot part decides, even when it gives nothing.
  EXPECT_EQ(identity("/models--solo/snapshots/" + rev + "/models--org--name/snapshots/" + rev),
            "none");
  EXPECT_EQ(identity("/models--x--y/snapshots/main/models--org--name/snapshots/" + rev),
            "hf:org/name@" + rev);
}

TEST(ProfileCase05, FurtherDashesStayInTheName) {
  EXPECT_EQ(identity("/c/models--org--a--b/snapshots/" + kRevOther), "hf:org/a--b@" + kRevOther);
  EXPECT_EQ(identity("/c/models--a---/snapshots/" + kRevOther), "hf:a/-@" + kRevOther);
}

TEST(ProfileCase22, TheFourVectors) {
  EXPECT_EQ(fingerprint_of(qwen35_27b()), "50117975cb405944");
  EXPECT_EQ(fingerprint_of(glm52()), "8b49d0941e18f1b9");
  EXPECT_EQ(fingerprint_of(json(R"({"hidden_size":8,"head_dim":4,"num_attention_heads":2,
      "num_key_value_heads":1,"final_logit_softcapping":30.0})")),
            "15d73122fd8daeb8");
  EXPECT_EQ(fingerprint_of(qwen35_27b(), json(R"([{"layer_idx":3,"bits":8,"group_size":64}])")),
            "dadbc8fb9892d599");
  Json other_glm = glm52();
  other_glm.erase("head_dim");
  EXPECT_EQ(fingerprint_of(other_glm), "8b49d0941e18f1b9");
}

TEST(ProfileCase22, CompactTextPerFamily) {
  const std::string off = R"("attentionKEqV":false,"numKvSharedLayers":0,)";
  const std::string dense_tail =
      off + R"("enableMoeBlock":false,"numExperts":0,"topKExperts":0,)"
            R"("hiddenSizePerLayerInput":0,"slidingWindow":0,"finalLogitSoftcapping":null,)"
            R"("kvQuant":null})";
  EXPECT_EQ(
      text_of(dense("llama")),
      R"({"layerTypes":["full_attention","full_attention","full_attention","full_attention"],)"
      R"("hiddenSize":128,"headDim":32,"globalHeadDim":32,"numAttentionHeads":4,)"
      R"("numKeyValueHeads":2,"numGlobalKeyValueHeads":2,)" +
          dense_tail);
  for (const char* type : {"qwen3", "qwen2", "mistral", "qwen3_5_text"})
    EXPECT_EQ(text_of(dense(type)),
              R"({"layerTypes":[],"hiddenSize":128,"headDim":32,"globalHeadDim":32,)"
              R"("numAttentionHeads":4,"numKeyValueHeads":2,"numGlobalKeyValueHeads":2,)" +
                  dense_tail);
  EXPECT_EQ(
      text_of(with(with(dense("qwen3_moe"), "num_experts", 8), "num_experts_per_tok", 2)),
      R"({"layerTypes":[],"hiddenSize":128,"headDim":32,"globalHeadDim":32,)"
      R"("numAttentionHeads":4,"numKeyValueHeads":2,"numGlobalKeyValueHeads":2,)" +
          off +
          R"("enableMoeBlock":true,"numExperts":8,"topKExperts":2,"hiddenSizePerLayerInput":0,)"
          R"("slidingWindow":0,"finalLogitSoftcapping":null,"kvQuant":null})");
  Json moe = gemma4();
  moe["text_config"].update(json(R"({"attention_k_eq_v":true,"num_global_key_value_heads":2,
      "enable_moe_block":true,"num_experts":8,"top_k_experts":2,"num_kv_shared_layers":1,
      "hidden_size_per_layer_input":64})"));
  EXPECT_EQ(text_of(moe, json(R"([{"layer_idx":0,"bits":4,"group_size":32}])")),
            R"({"layerTypes":["sliding_attention","full_attention"],"hiddenSize":128,"headDim":32,)"
            R"("globalHeadDim":64,"numAttentionHeads":4,"numKeyValueHeads":1,)"
            R"("numGlobalKeyValueHeads":2,"attentionKEqV":true,"numKvSharedLayers":1,)"
            R"("enableMoeBlock":true,"numExperts":8,"topKExperts":2,"hiddenSizePerLayerInput":64,)"
            R"("slidingWindow":16,"finalLogitSoftcapping":30,)"
            R"("kvQuant":[{"layerIdx":0,"bits":4,"groupSize":32}]})");
  const std::string diffusion =
      text_of(json(R"({"model_type":"diffusion_gemma","canvas_length":256})"));
  EXPECT_NE(
      diffusion.find(R"("hiddenSize":2816,"headDim":256,"globalHeadDim":512,)"
                     R"("numAttentionHeads":16,"numKeyValueHeads":8,"numGlobalKeyValueHeads":2)"),
      std::string::npos)
      << diffusion;
  EXPECT_TRUE(text_of(glm52()).ends_with(
      R"("hiddenSize":6144,"headDim":256,"globalHeadDim":256,"numAttentionHeads":64,)"
      R"("numKeyValueHeads":64,"numGlobalKeyValueHeads":64,)" +
      off +
      R"("enableMoeBlock":true,"numExperts":256,"topKExperts":8,"hiddenSizePerLayerInput":0,)"
      R"("slidingWindow":0,"finalLogitSoftcapping":null,"kvQuant":null})"));
}

TEST(ProfileCase23, NumbersPrintAsInEcmaScript) {
  const std::pair<double, const char*> cases[] = {{30.0, "30"},
                                                  {0.0, "0"},
                                                  {-0.0, "0"},
                                                  {0.1, "0.1"},
                                                  {-2.5, "-2.5"},
                                                  {1e21, "1e+21"},
                                                  {1e20, "100000000000000000000"},
                                                  {1e-6, "0.000001"},
                                                  {1e-7, "1e-7"},
                                                  {1.5e-7, "1.5e-7"},
                                                  {123456.789, "123456.789"},
                                                  {1.25e30, "1.25e+30"},
                                                  {5e-324, "5e-324"},
                                                  {1e300 * 1e300, "null"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(ecma_number(value), text);
  Json a = gemma4(), b = gemma4();
  b["text_config"]["final_logit_softcapping"] = 30;
  EXPECT_EQ(fingerprint_of(a), fingerprint_of(b));
}

TEST(ProfileCase23, AbsentNullAndZero) {
  const Json base = dense("qwen2");
  const std::string zero = text_of(base);
  EXPECT_EQ(text_of(with(base, "sliding_window", nullptr)), zero);
  EXPECT_EQ(text_of(with(base, "sliding_window", 0)), zero);
  EXPECT_EQ(text_of(with(base, "layer_types", nullptr)), zero);
  EXPECT_EQ(text_of(with(base, "hidden_size", 128.0)), zero);
  Json no_kv = base;
  no_kv.erase("num_key_value_heads");
  EXPECT_EQ(text_of(no_kv).find("KeyValueHeads"), std::string::npos) << "undefined is left out";
  EXPECT_NE(text_of(with(base, "num_key_value_heads", nullptr))
                .find(R"("numKeyValueHeads":null,"numGlobalKeyValueHeads":null)"),
            std::string::npos);
  EXPECT_NE(text_of(with(base, "num_key_value_heads", 0)).find(R"("numKeyValueHeads":0)"),
            std::string::npos);
  Json bare = json(R"({"model_type":"qwen2"})");
  EXPECT_TRUE(
      text_of(bare).starts_with(R"({"layerTypes":[],"headDim":null,"globalHeadDim":null,)"));
  EXPECT_NE(text_of(with(base, "final_logit_softcapping", 0)).find(R"("finalLogitSoftcapping":0)"),
            std::string::npos);
}

TEST(Fingerprint, MalformedFieldsAreNamed) {
  const std::pair<const char*, Json> cases[] = {
      {"hidden_size", "big"}, {"hidden_size", 1.5},    {"layer_types", 3},
      {"layer_types", {1}},   {"attention_k_eq_v", 1}, {"final_logit_softcapping", "30"},
      {"hidden_size", 1e300}, {"text_config", 1},      {"model_type", 7}};
  for (const auto& [key, value] : cases) {
    const auto fp = config_fingerprint(with(dense("qwen2"), key, value), nullptr);
    ASSERT_FALSE(fp.ok()) << key;
    EXPECT_EQ(fp.error().code, Code::invalid);
    EXPECT_NE(fp.error().message.find(key), std::string::npos) << fp.error().message;
  }
  EXPECT_FALSE(config_fingerprint(Json::array(), nullptr).ok());
  EXPECT_FALSE(
      config_fingerprint(with(dense("llama"), "num_hidden_layers", 1LL << 40), nullptr).ok());
  EXPECT_FALSE(config_fingerprint(dense("llama"), json("{}")).ok());
  EXPECT_FALSE(config_fingerprint(dense("llama"), json("[1]")).ok());
}

}  // namespace
}  // namespace tenon::profile

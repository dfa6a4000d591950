#include "profile/resolve.h"

#include <thread>
#include <type_traits>

#include "profile/descriptors.h"
#include "profile/predicates.h"
#include "profile/test_configs.h"

namespace tenon::profile {
namespace {
using namespace test;

std::string id_of(const Json& config) {
  const auto r = resolve(manifest(config));
  return r.ok() ? r->profile->id : r.error().message;
}

bool has_reason(const Resolved& r, std::string_view part) {
  for (const auto& line : r.reasons)
    if (line.find(part) != std::string::npos) return true;
  return false;
}

ResolveOptions extras(std::span<const Profile> list) {
  ResolveOptions options;
  options.extra_artifact_profiles = list;
  return options;
}

struct FamilyRow {
  Json config;
  std::string id;
  Fidelity fidelity;
  std::string capabilities;
  Loader loader;
  Graph graph;
  Loop loop;
  Specialization specialization;
};

const Fidelity kBits{Tier::l1, Oracle::mlx_lm, Claim::bit_exact};

std::vector<FamilyRow> family_rows() {
  constexpr auto st = Loader::safetensors;
  constexpr auto ar = Loop::autoregressive;
  constexpr auto own = Specialization::dedicated;
  Json plain_gemma = gemma4();
  plain_gemma["text_config"]["sliding_window"] = 32;
  return {
      {gemma4(), "gemma4-generated", kBits,
       "safetensors autoregressive gemma4-graph generated-graph", st, Graph::gemma4, ar,
       Specialization::generated},
      {plain_gemma, "gemma4-dedicated", kBits, "safetensors autoregressive gemma4-graph", st,
       Graph::gemma4, ar, own},
      {minicpm5(), "minicpm5-dedicated", kBits, "safetensors autoregressive minicpm5-graph", st,
       Graph::minicpm5, ar, own},
      {qwen35_27b(), "qwen3.5-dedicated", kBits,
       "safetensors autoregressive qwen3.5-graph recurrent-state", st, Graph::qwen35, ar, own},
      {dense("qwen3"), "qwen3-dedicated", kBits, "safetensors autoregressive qwen3-graph", st,
       Graph::qwen3, ar, own},
      {dense("qwen3_moe"), "qwen3-moe-dedicated", kBits,
       "safetensors autoregressive qwen3-moe-graph", st, Graph::qwen3_moe, ar, own},
      {json(R"({"model_type":"diffusion_gemma"})"),
       "diffusion-gemma-dedicated",
       {Tier::l2, Oracle::mlx_optiq, Claim::bit_exact},
       "safetensors diffusion diffusion-gemma-graph",
       st,
       Graph::diffusion_gemma,
       Loop::diffusion,
       own},
      {glm52(),
       "glm5.2-colibri",
       {Tier::l3, Oracle::none, Claim::measured},
       "colibri-container autoregressive glm5.2-graph streamed-experts",
       Loader::colibri,
       Graph::glm52,
       ar,
       own},
      {json(R"({"model_type":"bert"})"),
       "bert-encoder",
       {Tier::l3, Oracle::none, Claim::measured},
       "safetensors encode bert-encoder-graph",
       st,
       Graph::bert_encoder,
       Loop::encode,
       own},
      {dense("llama"), "universal-dense", kBits, "safetensors autoregressive universal-dense-graph",
       st, Graph::universal_dense, ar, Specialization::generic},
  };
}

GeneratedRegistry registry() {
  return GeneratedRegistry({{Graph::gemma4, fingerprint_of(gemma4())}});
}

TEST(ProfileCase01, EachFamilyFromItsConfig) {
  const GeneratedRegistry generated = registry();
  const auto rows = family_rows();
  ASSERT_EQ(rows.size(), family_profiles().size());
  for (const FamilyRow& row : rows) {
    const auto r = resolve_with(manifest(row.config), {}, generated);
    ASSERT_TRUE(r.ok()) << row.id << ": " << r.error().message;
    const Profile& p = *r->profile;
    EXPECT_EQ(p.id, row.id);
    EXPECT_FALSE(p.artifact_fingerprint || p.config_fingerprint || p.execution.implementation);
    EXPECT_EQ(p.fidelity, row.fidelity) << row.id;
    std::string capabilities;
    for (const Capability c : p.required_capabilities)
      capabilities += (capabilities.empty() ? "" : " ") + std::string(capability_name(c));
    EXPECT_EQ(capabilities, row.capabilities);
    EXPECT_EQ(p.execution.loader, row.loader);
    EXPECT_EQ(p.execution.graph, row.graph);
    EXPECT_EQ(p.execution.loop, row.loop);
    EXPECT_EQ(p.execution.specialization, row.specialization);
    EXPECT_FALSE(r->exact_artifact);
    EXPECT_FALSE(r->reasons.empty());
    EXPECT_TRUE(assert_resolved_with(manifest(row.config), *r, generated).ok()) << row.id;
  }
}

TEST(ProfileCase02, BuiltinArtifacts) {
  const auto a = resolve(manifest(qwen35_27b(), kPathA));
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->profile->id, "qwen3.8-27b-optiq-4bit");
  EXPECT_TRUE(a->exact_artifact);
  EXPECT_EQ(a->artifact_fingerprint, a->profile->artifact_fingerprint);
  EXPECT_EQ(a->config_fingerprint, "50117975cb405944");
  EXPECT_EQ(a->profile->required_capabilities.back(), Capability::vision_sidecar);
  EXPECT_EQ(a->profile->execution.specialization, Specialization::artifact);
  const auto b = resolve(manifest(glm52(), kPathB));
  ASSERT_TRUE(b.ok()) << b.error().message;
  EXPECT_EQ(b->profile->id, "glm5.2-colibri-int4-int8-mtp");
  EXPECT_TRUE(b->exact_artifact);
  EXPECT_TRUE(assert_resolved(manifest(glm52()), *b).ok());
}

TEST(ProfileCase06, ExplicitNone) {
  ResolveOptions options;
  options.artifact_fingerprint.kind = ArtifactOption::Kind::none;
  const auto r = resolve(manifest(qwen35_27b(), kPathA), options);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->profile->id, "qwen3.5-dedicated");
  EXPECT_FALSE(r->artifact_fingerprint.has_value());
  EXPECT_FALSE(r->exact_artifact);
}

TEST(ProfileCase07, ExplicitIdentityOnAnyDirectory) {
  ResolveOptions options;
  options.artifact_fingerprint = {ArtifactOption::Kind::given,
                                  *builtin_artifact_profiles()[0].artifact_fingerprint};
  const auto r = resolve(manifest(qwen35_27b()), options);
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(r->exact_artifact);
  options.artifact_fingerprint.value = "";
  expect_error(resolve(manifest(qwen35_27b()), options), "profile.E-IDENTITY",
               {"must not be empty"});
}

TEST(ProfileCase08, AnotherRevisionFallsToItsFamily) {
  std::string path = kPathA;
  path.replace(path.size() - kRevA.size(), kRevA.size(), kRevOther);
  const auto r = resolve(manifest(qwen35_27b(), path));
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->profile->id, "qwen3.5-dedicated");
  EXPECT_FALSE(r->exact_artifact);
  EXPECT_EQ(r->artifact_fingerprint, "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@" + kRevOther);
  EXPECT_TRUE(has_reason(*r, "the family decides"));
}

TEST(ProfileCase09, ChangedConfigOfAnExactArtifact) {
  Json config = qwen35_27b();
  config["text_config"]["num_key_value_heads"] = 8;
  const auto r = resolve(manifest(config, kPathA));
  const std::string actual = fingerprint_of(config);
  expect_error(r, "profile.E-CFGFP",
               {"'qwen3.8-27b-optiq-4bit'", *builtin_artifact_profiles()[0].artifact_fingerprint,
                actual, "50117975cb405944", "refusing to fall back"});
  // A kv_config.json added to the snapshot breaks the match as well.
  const Json kv = json(R"([{"layer_idx":3,"bits":8,"group_size":64}])");
  expect_error(resolve(manifest(qwen35_27b(), kPathA, kv)), "profile.E-CFGFP",
               {"dadbc8fb9892d599"});
}

TEST(ProfileCase10, ExtraWithAnIncompatibleGraph) {
  const Json config = dense("qwen3_moe");
  const Profile p = extra("mine", "hf:org/name@" + kRevOther, fingerprint_of(config));
  const auto r = resolve(manifest(config, kPathOther), extras({&p, 1}));
  expect_error(
      r, "profile.E-GRAPH",
      {"'mine'", "universal-dense", "incompatible", "'qwen3_moe'", "refusing to fall back"});
}

TEST(ProfileCase11, ExtraCannotShadowABuiltin) {
  const Profile p =
      extra("mine", *builtin_artifact_profiles()[0].artifact_fingerprint, "50117975cb405944");
  expect_error(resolve(manifest(qwen35_27b(), kPathA), extras({&p, 1})), "profile.E-DUP",
               {"multiple model profiles", *p.artifact_fingerprint});
}

TEST(ProfileCase12, DuplicatesMatterOnlyWhenResolved) {
  const Json config = dense("llama");
  const std::string fp = fingerprint_of(config), artifact = "hf:org/name@" + kRevOther;
  const Profile same[] = {extra("one", artifact, fp), extra("two", artifact, fp)};
  expect_error(resolve(manifest(config, kPathOther), extras(same)), "profile.E-DUP", {artifact});
  EXPECT_TRUE(resolve(manifest(config), extras(same)).ok());
  EXPECT_TRUE(resolve(manifest(qwen35_27b(), kPathA), extras(same)).ok());
  const Profile different[] = {extra("one", artifact, fp), extra("two", artifact + "0", fp)};
  const auto r = resolve(manifest(config, kPathOther), extras(different));
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->profile->id, "one");
  const Profile same_id[] = {extra("one", artifact, fp), extra("one", artifact + "0", fp)};
  expect_error(resolve(manifest(config), extras(same_id)), "profile.E-DUPID", {"'one'"});
}

TEST(ProfileCase13, MalformedExtrasAreFoundOnAPlainDirectory) {
  Profile p = extra("mine", "hf:org/name@" + kRevOther, "x");
  p.fidelity.tier = Tier::l2;
  expect_error(resolve(manifest(dense("llama")), extras({&p, 1})), "profile.E-FID", {"'mine'"});
  p = extra("mine", "", "x");
  expect_error(resolve(manifest(dense("llama")), extras({&p, 1})), "profile.E-SPEC", {"'mine'"});
}

TEST(ProfileCase15, MissingCapabilitiesInDeclarationOrder) {
  ResolveOptions options;
  options.engine_capabilities = {
      {Capability::safetensors, Capability::autoregressive, Capability::qwen35_graph}};
  const auto r = resolve(manifest(qwen35_27b()), options);
  expect_error(r, "profile.E-CAPS",
               {"'qwen3.5-dedicated'", ": recurrent-state;", "refusing to fall back"});
  EXPECT_EQ(r.error().code, Code::unsupported);
  options.engine_capabilities->clear();  // an empty list means none at all
  expect_error(resolve(manifest(qwen35_27b()), options), "profile.E-CAPS",
               {": safetensors, autoregressive, qwen3.5-graph, recurrent-state;"});
}

TEST(ProfileCase16, NoSilentDowngradeFromGenerated) {
  ResolveOptions options;
  options.engine_capabilities = {
      {Capability::safetensors, Capability::autoregressive, Capability::gemma4_graph}};
  expect_error(resolve_with(manifest(gemma4()), options, registry()), "profile.E-CAPS",
               {"'gemma4-generated'", ": generated-graph;"});
}

TEST(ProfileCase17, GeneratedRegistryHitAndMiss) {
  EXPECT_EQ(resolve_with(manifest(gemma4()), {}, registry())->profile->id, "gemma4-generated");
  Json config = gemma4();
  config["text_config"]["sliding_window"] = 17;
  EXPECT_EQ(resolve_with(manifest(config), {}, registry())->profile->id, "gemma4-dedicated");
  EXPECT_EQ(id_of(gemma4()), "gemma4-dedicated") << "the ordinary build has no generated code";
  EXPECT_EQ(id_of(with(gemma4(), "model_type", "gemma4_unified")), "gemma4-dedicated");
}

TEST(ProfileCase18, EachMiniCpm5ConditionCounts) {
  EXPECT_EQ(id_of(minicpm5()), "minicpm5-dedicated");
  const std::pair<const char*, Json> changes[] = {
      {"model_type", "mistral"},  {"hidden_size", 2048},        {"num_hidden_layers", 25},
      {"num_attention_heads", 8}, {"num_key_value_heads", 4},   {"head_dim", 64},
      {"vocab_size", 130561},     {"tie_word_embeddings", true}};
  for (const auto& [key, value] : changes)
    EXPECT_EQ(id_of(with(minicpm5(), key, value)), "universal-dense") << key;
  Json derived_head = minicpm5();
  derived_head.erase("head_dim");  // 1536 / 16 is 96
  EXPECT_EQ(id_of(derived_head), "universal-dense");
  Json silent = minicpm5();
  silent.erase("tie_word_embeddings");  // a llama that does not say is tied
  EXPECT_EQ(id_of(silent), "universal-dense");
}

TEST(ProfileCase19, Qwen35Obstacles) {
  const std::pair<const char*, Json> changes[] = {{"num_experts", 8},
                                                  {"linear_num_value_heads", 0},
                                                  {"full_attention_interval", 0},
                                                  {"enable_moe_block", true}};
  for (const auto& [key, value] : changes) {
    Json config = qwen35_27b();
    config["text_config"][key] = value;
    const auto r = resolve(manifest(config));
    expect_error(r, "profile.E-UNSUPPORTED",
                 {"\"qwen3_5\"", key,
                  "gemma4*, diffusion_gemma, glm_moe_dsa, qwen3_5, qwen3, qwen3_moe, MiniCPM5"});
    EXPECT_EQ(r.error().code, Code::unsupported);
  }
}

TEST(ProfileCase20, Remap) {
  const auto r = resolve(manifest(dense("mistral")));
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->profile->id, "universal-dense");
  EXPECT_EQ(r->model_type, "llama");
  EXPECT_TRUE(has_reason(*r, "remaps model_type 'mistral' to 'llama'"));
  EXPECT_TRUE(has_reason(*r, "model_type 'llama' has a universal-dense descriptor"));
  EXPECT_EQ(id_of(dense("iquestcoder")), "universal-dense");
  expect_error(
      resolve(manifest(dense("kimi_k2"))), "profile.E-UNSUPPORTED",
      {"\"kimi_k2\"", "mlx-lm", "\"deepseek_v3\"",
       "gemma, gemma2, gemma3_text, glm4, granite, llama, minicpm, olmo2, phi3, qwen2, qwen3, "
       "smollm3, starcoder2"});
  EXPECT_EQ(id_of(dense("rwkv")).find("remaps"), std::string::npos);
  EXPECT_EQ(remap_model_type("llava"), "mistral3");
  EXPECT_EQ(remap_model_type("llama"), "llama");
}

TEST(ProfileCase20, EveryDescriptor) {
  for (const std::string& type : generic_types()) {
    EXPECT_EQ(id_of(generic(type)), type == "qwen3" ? "qwen3-dedicated" : "universal-dense")
        << type;
    if (type == "gemma3_text" || type == "qwen3") continue;
    Json config = generic(type);
    config.erase("hidden_size");
    expect_error(resolve(manifest(config)), "profile.E-CONFIG", {"hidden_size", type});
  }
  expect_error(resolve(manifest(json("{}"))), "profile.E-CONFIG", {"model_type"});
}

TEST(ProfileCase21, DescriptorErrorsReachTheUser) {
  const Json smol = with(dense("smollm3"), "no_rope_layers", {1, 1, 1});
  expect_error(resolve(manifest(smol)), "profile.E-CONFIG", {"no_rope_layers", "has 3"});
  const Profile p = extra("mine", "hf:org/name@" + kRevOther, fingerprint_of(smol));
  expect_error(resolve(manifest(smol, kPathOther), extras({&p, 1})), "profile.E-GRAPH",
               {"'smollm3'"});
  EXPECT_FALSE(graph_accepts(Graph::universal_dense, *view_config(smol)));
  EXPECT_EQ(id_of(with(dense("smollm3"), "no_rope_layers", {1, 1, 1, 0})), "universal-dense");

  const Json phi = dense("phi3");
  expect_error(resolve(manifest(with(phi, "rope_scaling", {{"type", "longrope"}}))),
               "profile.E-CONFIG", {"rope_scaling", "long_factor"});
  EXPECT_EQ(id_of(with(phi, "rope_scaling", Json::object())), "universal-dense");
  const auto other =
      resolve(manifest(with(phi, "rope_scaling", {{"type", "yarn"}, {"long_factor", {1.0}}})));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(has_reason(*other, "RoPE scaling is off"));
}

TEST(ProfileCase24, SnapshotsAreImmutable) {
  const Json config = dense("llama");
  std::vector<Profile> list = {extra("mine", "hf:org/name@" + kRevOther, fingerprint_of(config))};
  const auto r = resolve(manifest(config, kPathOther), extras(list));
  ASSERT_TRUE(r.ok());
  list[0].id = "changed";
  list[0].required_capabilities.clear();
  list.clear();
  EXPECT_EQ(r->profile->id, "mine");
  EXPECT_EQ(r->profile->required_capabilities.size(), 3u);
  static_assert(std::is_same_v<decltype(Resolved::profile), std::shared_ptr<const Profile>>);
  static_assert(std::is_same_v<decltype(builtin_artifact_profiles()), std::span<const Profile>>);
  static_assert(std::is_same_v<decltype(family_profiles()), std::span<const Profile>>);
}

TEST(ProfileCase25, GuardAtTheFactory) {
  const Manifest m = manifest(qwen35_27b(), kPathA);
  const Resolved exact = *resolve(m);
  const Resolved family = *resolve(manifest(qwen35_27b()));
  EXPECT_TRUE(assert_resolved(m, exact).ok());
  EXPECT_TRUE(assert_resolved(m, family).ok());
  EXPECT_TRUE(assert_resolved(manifest(qwen35_27b(), "/a/copy"), exact).ok());

  Json wrong = qwen35_27b();
  wrong["text_config"]["hidden_size"] = 4096;
  expect_error(assert_resolved(manifest(wrong), exact), "profile.E-CFGFP",
               {"'qwen3.8-27b-optiq-4bit'", "50117975cb405944", fingerprint_of(wrong)});

  Json moe = qwen35_27b();  // the same fingerprint: num_experts enters it only with the MoE flag
  moe["text_config"]["num_experts"] = 8;
  expect_error(assert_resolved(manifest(moe), family), "profile.E-GRAPH",
               {"'qwen3.5-dedicated'", "qwen3.5", "'qwen3_5'"});

  Resolved forged = family;
  forged.exact_artifact = true;
  expect_error(assert_resolved(m, forged), "profile.E-IDENTITY",
               {"'qwen3.5-dedicated'", "<unidentified>"});
  forged = exact;
  forged.exact_artifact = false;
  expect_error(assert_resolved(m, forged), "profile.E-IDENTITY", {*exact.artifact_fingerprint});
  forged = exact;
  forged.artifact_fingerprint.reset();
  expect_error(assert_resolved(m, forged), "profile.E-IDENTITY", {"<unidentified>"});
  forged = exact;
  forged.artifact_fingerprint = "hf:other/thing@" + kRevOther;
  expect_error(assert_resolved(m, forged), "profile.E-IDENTITY", {"hf:other/thing@"});
  Profile altered = *exact.profile;
  altered.config_fingerprint = "0000000000000000";
  forged = exact;
  forged.profile = std::make_shared<const Profile>(altered);
  expect_error(assert_resolved(m, forged), "profile.E-IDENTITY", {"'qwen3.8-27b-optiq-4bit'"});
  altered.fidelity.tier = Tier::l2;
  forged.profile = std::make_shared<const Profile>(altered);
  const auto status = assert_resolved(m, forged);
  expect_error(status, "profile.E-FID", {});
  EXPECT_EQ(status.error().message.find("refusing to fall back"), std::string::npos);
  EXPECT_FALSE(assert_resolved(m, Resolved{}).ok());
  Resolved attached = family;  // a family profile passes whatever identity is attached
  attached.artifact_fingerprint = "hf:other/thing@" + kRevOther;
  EXPECT_TRUE(assert_resolved(m, attached).ok());
}

TEST(ProfileCase26, GuardIgnoresCapabilities) {
  const Manifest m = manifest(qwen35_27b());
  const Resolved r = *resolve(m);
  ResolveOptions shrunk;
  shrunk.engine_capabilities.emplace();
  EXPECT_FALSE(resolve(m, shrunk).ok());
  EXPECT_TRUE(assert_resolved(m, r).ok());
}

TEST(ProfileCase27, DraftersAreNotServable) {
  for (const char* type : {"gemma4_assistant", "qwen3_5_mtp", "glm_moe_dsa_mtp"}) {
    const auto r = resolve(manifest(dense(type)));
    expect_error(r, "profile.E-DRAFTER", {type, "a drafter is not servable alone"});
    EXPECT_EQ(r.error().code, Code::unsupported);
  }
}

TEST(ProfileCase28, ConcurrentResolves) {
  const auto rows = family_rows();
  const GeneratedRegistry generated = registry();
  std::vector<int> good(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < good.size(); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 20 * rows.size(); ++i) {
        const FamilyRow& row = rows[(i + t) % rows.size()];
        const auto r = resolve_with(manifest(row.config, i % 2 ? kPathOther : "/m"), {}, generated);
        good[t] += r.ok() && r->profile->id == row.id &&
                   assert_resolved_with(manifest(row.config), *r, generated).ok();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const int count : good) EXPECT_EQ(count, static_cast<int>(20 * rows.size()));
}

TEST(Resolve, GgufHasNoIdentity) {
  Manifest m = manifest(dense("llama"), kPathOther + "/model.gguf");
  m.container = "gguf";
  const auto r = resolve(m);
  ASSERT_TRUE(r.ok());
  EXPECT_FALSE(r->artifact_fingerprint.has_value());
  EXPECT_EQ(r->profile->execution.loader, Loader::safetensors);
  EXPECT_TRUE(has_reason(*r, "GGUF"));
}

}  // namespace
}  // namespace tenon::profile

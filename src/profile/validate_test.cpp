#include "profile/validate.h"

#include "profile/implementation.h"
#include "profile/tables.h"
#include "profile/test_configs.h"

namespace tenon::profile {
namespace {
using namespace test;

const GeneratedRegistry kNone;

Profile good() { return extra("mine", "hf:org/name@" + kRevOther, "0000000000000000"); }

Status check(const Profile& p) { return validate_profile(p, kNone); }

TEST(ProfileCase13, EachCode) {
  EXPECT_TRUE(check(good()).ok());
  Profile p = good();
  p.id = "";
  expect_error(check(p), "profile.E-ID", {"model profile id must not be empty"});
  p.id = " ";
  EXPECT_TRUE(check(p).ok()) << "a blank id passes";

  for (const bool config : {false, true}) {
    p = good();
    (config ? p.config_fingerprint : p.artifact_fingerprint).reset();
    expect_error(check(p), "profile.E-PAIR",
                 {"'mine'", "artifactFingerprint", "configFingerprint", "together"});
  }
  p = good();
  p.fidelity.claim = Claim::measured;
  expect_error(check(p), "profile.E-FID", {"'mine'", "invalid fidelity contract"});
  p = good();
  p.execution.loader = Loader::colibri;
  expect_error(check(p), "profile.E-COMP", {"'mine'", "invalid composition", "universal-dense"});
  p = good();
  p.execution.loop = Loop::diffusion;
  expect_error(check(p), "profile.E-COMP", {"'mine'", "invalid composition", "universal-dense"});
  p = good();
  p.required_capabilities = {Capability::autoregressive, Capability::vision_sidecar};
  expect_error(check(p), "profile.E-UNDER", {"'mine'", ": safetensors, universal-dense-graph;"});
}

TEST(ProfileCase13, EachImplementationCondition) {
  Profile p = good();
  p.execution.implementation = "special";
  EXPECT_TRUE(check(p).ok());
  for (const char* blank : {"", " \t\n"}) {
    p.execution.implementation = blank;
    expect_error(check(p), "profile.E-IMPL", {"'mine'", "named implementation", "exact artifact"});
  }
  p.execution.implementation = "special";
  Profile no_artifact = p;
  no_artifact.artifact_fingerprint.reset();
  expect_error(check(no_artifact), "profile.E-IMPL", {"'mine'"});
  no_artifact.artifact_fingerprint = "";
  expect_error(check(no_artifact), "profile.E-IMPL", {"'mine'"});
  p.execution.specialization = Specialization::dedicated;
  expect_error(check(p), "profile.E-IMPL", {"'mine'"});
}

TEST(ProfileCase13, EveryFidelityTriple) {
  int valid = 0;
  for (const Tier tier : {Tier::l1, Tier::l2, Tier::l3})
    for (const Oracle oracle : {Oracle::none, Oracle::mlx_lm, Oracle::mlx_optiq})
      for (const Claim claim : {Claim::bit_exact, Claim::measured}) {
        Profile p = good();
        p.fidelity = {tier, oracle, claim};
        valid += check(p).ok();
      }
  EXPECT_EQ(valid, 3);
}

TEST(ProfileCase14, FirstDefectInTableOrderIsReported) {
  Profile p = good();
  p.execution.specialization = Specialization::generic;
  EXPECT_EQ(check(p).error().reason, "profile.E-SPEC");
  p.required_capabilities.clear();
  EXPECT_EQ(check(p).error().reason, "profile.E-UNDER");
  p.execution.loop = Loop::diffusion;
  EXPECT_EQ(check(p).error().reason, "profile.E-COMP");
  p.fidelity.tier = Tier::l3;
  EXPECT_EQ(check(p).error().reason, "profile.E-FID");
  p.config_fingerprint.reset();
  EXPECT_EQ(check(p).error().reason, "profile.E-PAIR");
  p.execution.implementation = "x";
  EXPECT_EQ(check(p).error().reason, "profile.E-IMPL");
  p.id = "";
  EXPECT_EQ(check(p).error().reason, "profile.E-ID");
}

TEST(Validate, StricterThanTheSource) {
  Profile p = good();
  p.artifact_fingerprint.reset();
  p.config_fingerprint.reset();
  expect_error(check(p), "profile.E-SPEC", {"'mine'", "artifact"});
  p.execution.specialization = Specialization::generated;
  p.required_capabilities.push_back(Capability::generated_graph);
  expect_error(check(p), "profile.E-SPEC", {"no generated code for graph universal-dense"});
  EXPECT_TRUE(validate_profile(p, GeneratedRegistry({{Graph::universal_dense, "x"}})).ok());

  const Profile* unbound_list[] = {&family_profile("universal-dense")};
  expect_error(validate_artifact_profiles(unbound_list, kNone), "profile.E-NOFP",
               {"universal-dense"});
  const Profile one = good(), two = good();
  const Profile* same_id[] = {&one, &two};
  expect_error(validate_artifact_profiles(same_id, kNone), "profile.E-DUPID", {"'mine'"});
}

TEST(Validate, BuiltinTablesAreValid) {
  for (const Profile& each : builtin_artifact_profiles()) EXPECT_TRUE(check(each).ok()) << each.id;
  for (const Profile& each : family_profiles())
    EXPECT_TRUE(validate_profile(each, GeneratedRegistry({{Graph::gemma4, "x"}})).ok()) << each.id;
}

TEST(Capability, SpellingsAreSortedAndParse) {
  std::string last;
  for (int i = 0; i < 20; ++i) {
    const auto c = static_cast<Capability>(i);
    const std::string name = capability_name(c);
    // '-' sorts before '.', so plain comparison puts qwen3.5-graph where the table has it.
    EXPECT_LT(last, name);
    EXPECT_EQ(*parse_capability(name, "p"), c);
    last = name;
  }
  EXPECT_EQ(last, "vision-sidecar");
  const auto bad = parse_capability("time-travel", "mine");
  expect_error(bad, "profile.E-CAPNAME", {"'mine'", "'time-travel'"});
  EXPECT_EQ(bad.error().code, Code::invalid);
}

TEST(Implementation, IdsAndLookups) {
  const auto& builtin = builtin_implementations();
  for (const Profile& each : family_profiles()) {
    const auto found = builtin.find(each);
    if (each.id == "gemma4-generated") {
      EXPECT_EQ(implementation_id(each), "gemma4-generated");
      expect_error(found, "profile.E-IMPLUNKNOWN", {"gemma4-generated", "refusing to fall back"});
    } else {
      ASSERT_TRUE(found.ok()) << each.id;
      EXPECT_EQ(found->id, graph_name(each.execution.graph));
    }
  }
  Profile p = good();
  p.execution.implementation = "special";
  const Implementation special{"special", Graph::universal_dense, Loader::safetensors,
                               Loop::autoregressive};
  const auto more = builtin.extended({&special, 1});
  ASSERT_TRUE(more.ok());
  EXPECT_EQ(more->find(p)->id, "special");
  EXPECT_FALSE(builtin.find(p).ok()) << "the original is unchanged";
  expect_error(more->extended({&special, 1}), "profile.E-IMPLDUP", {"special"});
  const Implementation blank{" ", Graph::qwen3, Loader::safetensors, Loop::autoregressive};
  expect_error(builtin.extended({&blank, 1}), "profile.E-IMPLID", {"blank"});
  p.execution.implementation = "qwen3";
  expect_error(builtin.find(p), "profile.E-IMPLCOMP", {"'qwen3'", "'mine'"});
}

}  // namespace
}  // namespace tenon::profile

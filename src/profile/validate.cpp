#include "profile/validate.h"

#include <algorithm>
#include <set>

#include "profile/tables.h"

namespace tenon::profile {

namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\n\v\f\r") == std::string_view::npos;
}

bool is_empty(const std::optional<std::string>& text) { return !text || text->empty(); }

// Model files never name code: only a profile of one exact artifact may, and only this way.
Status check_implementation(const Profile& p) {
  const auto& name = p.execution.implementation;
  if (!name) return {};
  if (!is_blank(*name) && !is_empty(p.artifact_fingerprint) &&
      p.execution.specialization == Specialization::artifact)
    return {};
  return invalid(
             "model profile '{}' must bind a named implementation to an exact artifact: give it a "
             "name, an artifactFingerprint and specialization artifact, or remove implementation",
             p.id)
      .because("profile.E-IMPL");
}

Status check_pair(const Profile& p) {
  if (p.artifact_fingerprint.has_value() == p.config_fingerprint.has_value()) return {};
  return invalid(
             "model profile '{}' must declare artifactFingerprint and configFingerprint together; "
             "only {} is there",
             p.id, p.artifact_fingerprint ? "artifactFingerprint" : "configFingerprint")
      .because("profile.E-PAIR");
}

Status check_fidelity(const Profile& p) {
  const Fidelity f = p.fidelity;
  if (f == kL1 || f == kL2 || f == kL3) return {};
  return invalid(
             "model profile '{}' has an invalid fidelity contract ({}, {}, {}); use l1/mlx-lm/"
             "bit-exact, l2/mlx-optiq/bit-exact or l3/none/measured",
             p.id, tier_name(f.tier), oracle_name(f.oracle), claim_name(f.claim))
      .because("profile.E-FID");
}

Status check_composition(const Profile& p) {
  const GraphRule& rule = graph_rule(p.execution.graph);
  if (p.execution.loader == rule.loader && p.execution.loop == rule.loop) return {};
  return invalid(
             "model profile '{}' has an invalid composition for graph {}: it takes loader {} and "
             "loop {}, not {} and {}",
             p.id, graph_name(rule.graph), loader_name(rule.loader), loop_name(rule.loop),
             loader_name(p.execution.loader), loop_name(p.execution.loop))
      .because("profile.E-COMP");
}

Status check_capabilities(const Profile& p) {
  std::vector<Capability> undeclared = derived_capabilities(p.execution);
  std::erase_if(undeclared, [&](Capability c) {
    return std::ranges::find(p.required_capabilities, c) != p.required_capabilities.end();
  });
  if (undeclared.empty()) return {};
  return invalid(
             "model profile '{}' does not declare execution capabilities: {}; add them to "
             "requiredCapabilities",
             p.id, join(undeclared))
      .because("profile.E-UNDER");
}

Status check_specialization(const Profile& p, const GeneratedRegistry& generated) {
  const auto refuse = [&](std::string_view why) -> Status {
    return invalid("model profile '{}' has specialization {}: {}", p.id,
                   specialization_name(p.execution.specialization), why)
        .because("profile.E-SPEC");
  };
  const bool artifact = p.execution.specialization == Specialization::artifact;
  if (artifact && is_empty(p.artifact_fingerprint))
    return refuse("artifact needs an artifactFingerprint and a configFingerprint");
  if (!artifact && p.artifact_fingerprint)
    return refuse("a profile with fingerprints must have specialization artifact");
  if (p.execution.specialization == Specialization::generated &&
      !generated.has_code_for(p.execution.graph))
    return refuse(fmt::format("this build has no generated code for graph {}",
                              graph_name(p.execution.graph)));
  return {};
}

}  // namespace

Status validate_profile(const Profile& profile, const GeneratedRegistry& generated) {
  if (profile.id.empty())
    return invalid("model profile id must not be empty; give every profile an id")
        .because("profile.E-ID");
  TENON_OK(check_implementation(profile));
  TENON_OK(check_pair(profile));
  TENON_OK(check_fidelity(profile));
  TENON_OK(check_composition(profile));
  TENON_OK(check_capabilities(profile));
  return check_specialization(profile, generated);
}

Status validate_artifact_profiles(std::span<const Profile* const> profiles,
                                  const GeneratedRegistry& generated) {
  std::set<std::string_view> ids;
  for (const Profile* p : profiles) {
    TENON_OK(validate_profile(*p, generated));
    if (is_empty(p->artifact_fingerprint) || is_empty(p->config_fingerprint))
      return invalid(
                 "model profile '{}' is in the artifact list without artifactFingerprint and "
                 "configFingerprint, so it could never match; declare both",
                 p->id)
          .because("profile.E-NOFP");
    if (!ids.insert(p->id).second)
      return invalid(
                 "model profile id '{}' is used twice; builtin and extra profiles need ids of "
                 "their own",
                 p->id)
          .because("profile.E-DUPID");
  }
  return {};
}

}  // namespace tenon::profile

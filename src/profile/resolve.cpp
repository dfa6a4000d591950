// Resolution: exact artifact -> family -> universal dense -> a refusal that says what would work.
// It never falls back from a stronger claim to a weaker one. Step numbers are those of the profile
// spec.
#include "profile/resolve.h"

#include <algorithm>

#include "profile/descriptors.h"
#include "profile/predicates.h"
#include "profile/tables.h"
#include "profile/validate.h"

namespace tenon::profile {

namespace {

using Reasons = std::vector<std::string>;

constexpr const char* kTargeted =
    "gemma4*, diffusion_gemma, glm_moe_dsa, qwen3_5, qwen3, qwen3_moe, MiniCPM5, bert";

Result<std::optional<std::string>> artifact_identity(const Manifest& manifest,
                                                     const ArtifactOption& option,
                                                     Reasons& reasons) {
  std::optional<std::string> id;
  switch (option.kind) {
    case ArtifactOption::Kind::none:
      reasons.push_back("no artifact identity: the caller asked for none");
      return id;
    case ArtifactOption::Kind::given:
      if (option.value.empty())
        return invalid("an explicit artifact identity must not be empty; name one, or ask for none")
            .because("profile.E-IDENTITY");
      reasons.push_back(fmt::format("artifact identity {} given by the caller", option.value));
      return id = option.value;
    case ArtifactOption::Kind::derive: break;
  }
  // A GGUF file is one of many in a snapshot, so the snapshot's revision does not name it.
  if (manifest.container == "gguf") {
    reasons.push_back("no artifact identity: a GGUF file has none");
    return id;
  }
  id = external_artifact_fingerprint(manifest.path);
  reasons.push_back(
      id ? fmt::format("artifact identity {} from the snapshot path", *id)
         : "no artifact identity: the path is not a Hugging Face snapshot of a revision");
  return id;
}

Error incompatible(const Profile& p, const ConfigView& view) {
  return invalid("model profile '{}' selects graph {}, which is incompatible with model_type '{}'",
                 p.id, graph_name(p.execution.graph), view.model_type)
      .because("profile.E-GRAPH");
}

// Step 5: the profile that claims exactly this artifact, or nullptr.
Result<const Profile*> exact_profile(std::span<const Profile* const> candidates,
                                     const std::optional<std::string>& artifact,
                                     const std::string& fingerprint, const ConfigView& view) {
  const Profile* match = nullptr;
  if (!artifact) return match;
  std::string ids;
  int matches = 0;
  for (const Profile* each : candidates) {
    if (*each->artifact_fingerprint != *artifact) continue;
    ids += (matches++ ? ", " : "") + each->id;
    match = each;
  }
  if (!match) return match;
  if (matches > 1)
    return invalid("multiple model profiles declare artifact {}: {}; keep one of them", *artifact,
                   ids)
        .because("profile.E-DUP");
  if (*match->config_fingerprint != fingerprint)
    return invalid(
               "model profile '{}' matched artifact {}, but config fingerprint {} != declared {}; "
               "refusing to fall back. Restore this revision's config.json and kv_config.json, or "
               "run it by its family from a directory that is not a Hugging Face snapshot",
               match->id, *artifact, fingerprint, *match->config_fingerprint)
        .because("profile.E-CFGFP");
  if (!graph_accepts(match->execution.graph, view)) {
    Error error = incompatible(*match, view);
    error.message += "; refusing to fall back. Correct that profile's graph or remove the profile";
    return error;
  }
  return match;
}

Error unsupported_type(const ConfigView& view) {
  const std::string remapped = remap_model_type(view.model_type);
  std::string generic;
  for (const std::string& type : generic_types()) generic += (generic.empty() ? "" : ", ") + type;
  const auto obstacle = near_miss(view);
  return unsupported(
             "unsupported model_type \"{}\"{}{}; targeted: {}; generic (Tier-0): {}. Choose a "
             "model of one of these types",
             view.model_type,
             remapped == view.model_type ? ""
                                         : fmt::format(" (mlx-lm remaps it to \"{}\")", remapped),
             obstacle ? ": " + *obstacle : "", kTargeted, generic)
      .because("profile.E-UNSUPPORTED")
      .at("model_type");
}

// Step 6, in order of precedence.
Result<const Profile*> family_of(const ConfigView& view, const std::string& fingerprint,
                                 const GeneratedRegistry& generated, Reasons& reasons) {
  const std::string& type = view.model_type;
  const auto choose = [&](std::string_view id, std::string reason) -> const Profile* {
    reasons.push_back(std::move(reason));
    return &family_profile(id);
  };
  const auto accepts = [&](Graph graph) { return graph_accepts(graph, view); };
  const auto own_graph = [&](Graph graph) {
    return fmt::format("model_type '{}' has the dedicated {} graph", type, graph_name(graph));
  };
  if (accepts(Graph::glm52)) return choose("glm5.2-colibri", own_graph(Graph::glm52));
  if (accepts(Graph::diffusion_gemma))
    return choose("diffusion-gemma-dedicated", own_graph(Graph::diffusion_gemma));
  if (accepts(Graph::minicpm5))
    return choose(
        "minicpm5-dedicated",
        "model_type 'llama' with the dimensions of MiniCPM5 has the dedicated minicpm5 graph");
  if (accepts(Graph::qwen35)) return choose("qwen3.5-dedicated", own_graph(Graph::qwen35));
  if (accepts(Graph::qwen3_moe)) return choose("qwen3-moe-dedicated", own_graph(Graph::qwen3_moe));
  if (accepts(Graph::qwen3)) return choose("qwen3-dedicated", own_graph(Graph::qwen3));
  if (accepts(Graph::gemma4)) {
    if (generated.contains(Graph::gemma4, fingerprint))
      return choose(
          "gemma4-generated",
          fmt::format("this build has a generated gemma4 graph for config {}", fingerprint));
    return choose("gemma4-dedicated", own_graph(Graph::gemma4));
  }
  if (accepts(Graph::bert_encoder)) return choose("bert-encoder", own_graph(Graph::bert_encoder));
  const std::string remapped = remap_model_type(type);
  if (!has_descriptor(remapped)) return unsupported_type(view);
  if (remapped != type)
    reasons.push_back(fmt::format("mlx-lm remaps model_type '{}' to '{}'", type, remapped));
  // The descriptor's own complaint reaches the user: nothing else could run this config.
  auto remarks = parse_descriptor(view);
  if (!remarks.ok()) return std::move(remarks).error().because("profile.E-CONFIG");
  const Profile* chosen =
      choose("universal-dense", fmt::format("model_type '{}' has a universal-dense "
                                            "descriptor",
                                            remapped));
  for (std::string& line : *remarks) reasons.push_back(std::move(line));
  return chosen;
}

// Step 9.
Status check_engine(const Profile& p, const std::optional<std::vector<Capability>>& engine) {
  if (!engine) return {};  // the default engine has all of them
  std::vector<Capability> missing;
  for (const Capability c : p.required_capabilities)
    if (std::ranges::find(*engine, c) == engine->end()) missing.push_back(c);
  if (missing.empty()) return {};
  return unsupported(
             "model profile '{}' requires missing engine capabilities: {}; refusing to fall back. "
             "Use a build and device that have them",
             p.id, join(missing))
      .because("profile.E-CAPS");
}

std::string fidelity_reason(Fidelity f) {
  if (f.oracle == Oracle::none)
    return fmt::format("fidelity {}: measured, there is no executable oracle", tier_name(f.tier));
  return fmt::format("fidelity {}: {} with {}", tier_name(f.tier), claim_name(f.claim),
                     oracle_name(f.oracle));
}

}  // namespace

Result<Resolved> resolve_with(const Manifest& manifest, const ResolveOptions& options,
                              const GeneratedRegistry& generated) {
  TENON_TRY(const ConfigView view, view_config(manifest.config));
  if (view.model_type.empty())
    return invalid("config.json.model_type is missing; without it the graph is not known")
        .at("model_type")
        .because("profile.E-CONFIG");

  Resolved out;
  TENON_TRY(out.config_fingerprint, config_fingerprint(manifest.config, manifest.kv_config));
  out.model_type = remap_model_type(view.model_type);
  TENON_TRY(out.artifact_fingerprint,
            artifact_identity(manifest, options.artifact_fingerprint, out.reasons));
  out.reasons.push_back("config fingerprint " + out.config_fingerprint);

  std::vector<const Profile*> candidates;
  for (const Profile& each : builtin_artifact_profiles()) candidates.push_back(&each);
  for (const Profile& each : options.extra_artifact_profiles) candidates.push_back(&each);
  // Always, so a malformed extra is found on a plain directory too.
  TENON_OK(validate_artifact_profiles(candidates, generated));

  TENON_TRY(const Profile* chosen,
            exact_profile(candidates, out.artifact_fingerprint, out.config_fingerprint, view));
  out.exact_artifact = chosen != nullptr;
  if (chosen) {
    out.reasons.push_back(
        fmt::format("artifact profile '{}' declares exactly this artifact and config", chosen->id));
  } else {
    if (is_drafter(view.model_type))
      return unsupported(
                 "model_type '{}': a drafter is not servable alone; serve its target model and "
                 "name this one as the draft",
                 view.model_type)
          .at("model_type")
          .because("profile.E-DRAFTER");
    if (out.artifact_fingerprint)
      out.reasons.push_back("no artifact profile declares this artifact: the family decides");
    TENON_TRY(chosen, family_of(view, out.config_fingerprint, generated, out.reasons));
  }
  TENON_OK(validate_profile(*chosen, generated));
  out.profile = std::make_shared<const Profile>(*chosen);  // a copy: the caller may change its own
  TENON_OK(check_engine(*out.profile, options.engine_capabilities));
  out.reasons.push_back("the engine has all required capabilities: " +
                        join(out.profile->required_capabilities));
  out.reasons.push_back(fidelity_reason(out.profile->fidelity));
  return out;
}

Status assert_resolved_with(const Manifest& manifest, const Resolved& resolved,
                            const GeneratedRegistry& generated) {
  if (!resolved.profile)
    return invalid("no model profile was resolved; resolve the model first")
        .because("profile.E-ID");
  const Profile& p = *resolved.profile;
  TENON_OK(validate_profile(p, generated));
  TENON_TRY(const std::string fingerprint, config_fingerprint(manifest.config, manifest.kv_config));
  if (resolved.config_fingerprint != fingerprint)
    return invalid("model profile '{}' was resolved for config {}, not {}; resolve the model again",
                   p.id, resolved.config_fingerprint, fingerprint)
        .because("profile.E-CFGFP");
  TENON_TRY(const ConfigView view, view_config(manifest.config));
  if (!graph_accepts(p.execution.graph, view)) {
    Error error = incompatible(p, view);
    error.message += "; resolve the model again";
    return error;
  }
  const bool exact = p.artifact_fingerprint.has_value();
  if (resolved.exact_artifact != exact ||
      (exact && (p.artifact_fingerprint != resolved.artifact_fingerprint ||
                 p.config_fingerprint != fingerprint)))
    return invalid("model profile '{}' does not match artifact {}; resolve the model again", p.id,
                   resolved.artifact_fingerprint.value_or("<unidentified>"))
        .because("profile.E-IDENTITY");
  return {};
}

namespace {
const GeneratedRegistry& ordinary_build() {
  static const GeneratedRegistry none;
  return none;
}
}  // namespace

Result<Resolved> resolve(const Manifest& manifest, const ResolveOptions& options) {
  return resolve_with(manifest, options, ordinary_build());
}

Status assert_resolved(const Manifest& manifest, const Resolved& resolved) {
  return assert_resolved_with(manifest, resolved, ordinary_build());
}

}  // namespace tenon::profile

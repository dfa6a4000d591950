// The door of profile: from a parsed config to an explicit, immutable statement of what will run.
// Pure data: no file access, no environment, no clock, no MLX. Thread: all of it is immutable.
// Source: the model profile specification (capabilities, fidelity, composition, fingerprints);
// names in quotes below are the ones users see in `tenon info`.
//
//   Manifest (what the files say)  ->  resolve()  ->  Resolved (which graph, loop, fidelity, and
//   why)
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tenon::profile {

// Alphabetical by spelling; 20 values. The enum order is the spelling order.
enum class Capability {
  autoregressive,
  bert_encoder_graph,
  colibri_container,
  diffusion,
  diffusion_gemma_graph,
  encode,
  gemma4_graph,
  generated_graph,
  glm52_graph,
  minicpm5_graph,
  mixed_precision_kv,
  native_mtp,
  qwen3_graph,
  qwen3_moe_graph,
  qwen35_graph,
  recurrent_state,
  safetensors,
  streamed_experts,
  universal_dense_graph,
  vision_sidecar,
};
const char* capability_name(Capability c);  // "qwen3.5-graph"
Result<Capability> parse_capability(std::string_view name, std::string_view profile_id);

enum class Tier { l1, l2, l3 };
enum class Oracle { none, mlx_lm, mlx_optiq };
enum class Claim { bit_exact, measured };
struct Fidelity {
  Tier tier;
  Oracle oracle;
  Claim claim;
  bool operator==(const Fidelity&) const = default;
};
enum class Loader { safetensors, colibri };
enum class Graph {
  gemma4,
  minicpm5,
  qwen35,
  qwen3,
  qwen3_moe,
  diffusion_gemma,
  glm52,
  bert_encoder,
  universal_dense
};
enum class Loop { autoregressive, diffusion, encode };
enum class Specialization { artifact, dedicated, generated, generic };
const char* tier_name(Tier t);
const char* oracle_name(Oracle o);
const char* claim_name(Claim c);
const char* loader_name(Loader l);
const char* graph_name(Graph g);
const char* loop_name(Loop l);
const char* specialization_name(Specialization s);

struct Composition {
  Loader loader;
  Graph graph;
  Loop loop;
  Specialization specialization;
  std::optional<std::string> implementation;
};
struct Profile {
  std::string id;
  std::optional<std::string> artifact_fingerprint, config_fingerprint;
  Fidelity fidelity;
  std::vector<Capability> required_capabilities;  // declaration order; messages depend on it
  Composition execution;
};

// What a model's files say about it, before any weight is read. Made by checkpoint.
struct Manifest {
  std::string path;       // as given; fingerprints derive from it
  std::string container;  // "safetensors", "gguf"
  Json config;            // config.json, or the equivalent made from GGUF metadata
  Json generation_config; // null when absent
  Json kv_config;         // kv_config.json, null when absent
};

// Absent: derive from the path. Explicit none: no identity. Explicit string: the caller vouches for
// it.
struct ArtifactOption {
  enum class Kind { derive, none, given } kind = Kind::derive;
  std::string value;
};
struct ResolveOptions {
  ArtifactOption artifact_fingerprint;
  std::span<const Profile> extra_artifact_profiles;
  std::optional<std::vector<Capability>> engine_capabilities;  // replaces the default of all 18
};

struct Resolved {
  std::shared_ptr<const Profile> profile;
  std::optional<std::string> artifact_fingerprint;
  std::string config_fingerprint;
  bool exact_artifact = false;
  std::string model_type;  // after mlx-lm's remap: the universal-dense descriptor's name
  std::vector<std::string> reasons;  // one line each, in the order of decision
};

// "hf:org/name@rev" of a Hugging Face snapshot path, or none.
std::optional<std::string> external_artifact_fingerprint(std::string_view path);
// 16 hex digits over the structural fields of a config. Errors: invalid, naming the field.
Result<std::string> config_fingerprint(const Json& config, const Json& kv_config);
// mlx-lm's model_type remap: "mistral" -> "llama".
std::string remap_model_type(std::string_view model_type);

Result<Resolved> resolve(const Manifest& manifest, const ResolveOptions& options = {});
// The guard at the factory: a Resolved carried to this manifest still fits it.
Status assert_resolved(const Manifest& manifest, const Resolved& resolved);

std::span<const Profile> builtin_artifact_profiles();
std::span<const Profile> family_profiles();

}  // namespace tenon::profile

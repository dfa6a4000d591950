// The words of this room: every enum's spelling, as users see it in `tenon info` and in messages.
#include <array>
#include <string_view>

#include "profile/profile.h"

namespace tenon::profile {

namespace {

// Indexed by the enum, which is in spelling order.
constexpr std::array<const char*, 20> kCapabilityNames = {
    "autoregressive",        "bert-encoder-graph",
    "colibri-container",     "diffusion",
    "diffusion-gemma-graph", "encode",
    "gemma4-graph",          "generated-graph",
    "glm5.2-graph",          "minicpm5-graph",
    "mixed-precision-kv",    "native-mtp",
    "qwen3-graph",           "qwen3-moe-graph",
    "qwen3.5-graph",         "recurrent-state",
    "safetensors",           "streamed-experts",
    "universal-dense-graph", "vision-sidecar",
};
constexpr std::array<const char*, 3> kTierNames = {"l1", "l2", "l3"};
constexpr std::array<const char*, 3> kOracleNames = {"none", "mlx-lm", "mlx-optiq"};
constexpr std::array<const char*, 2> kClaimNames = {"bit-exact", "measured"};
constexpr std::array<const char*, 2> kLoaderNames = {"safetensors", "colibri"};
constexpr std::array<const char*, 9> kGraphNames = {
    "gemma4",          "minicpm5", "qwen3.5",      "qwen3",           "qwen3-moe",
    "diffusion-gemma", "glm5.2",   "bert-encoder", "universal-dense",
};
constexpr std::array<const char*, 3> kLoopNames = {"autoregressive", "diffusion", "encode"};
constexpr std::array<const char*, 4> kSpecializationNames = {"artifact", "dedicated", "generated",
                                                             "generic"};

template <size_t N, class E>
const char* name_in(const std::array<const char*, N>& names, E value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "?";
}

}  // namespace

const char* capability_name(Capability c) { return name_in(kCapabilityNames, c); }
const char* tier_name(Tier t) { return name_in(kTierNames, t); }
const char* oracle_name(Oracle o) { return name_in(kOracleNames, o); }
const char* claim_name(Claim c) { return name_in(kClaimNames, c); }
const char* loader_name(Loader l) { return name_in(kLoaderNames, l); }
const char* graph_name(Graph g) { return name_in(kGraphNames, g); }
const char* loop_name(Loop l) { return name_in(kLoopNames, l); }
const char* specialization_name(Specialization s) { return name_in(kSpecializationNames, s); }

Result<Capability> parse_capability(std::string_view name, std::string_view profile_id) {
  for (size_t i = 0; i < kCapabilityNames.size(); ++i)
    if (name == kCapabilityNames[i]) return static_cast<Capability>(i);
  std::string known;
  for (const char* each : kCapabilityNames)
    known += (known.empty() ? "" : ", ") + std::string(each);
  return invalid("model profile '{}' requires an unknown capability '{}'; known are: {}",
                 profile_id, name, known)
      .because("profile.E-CAPNAME");
}

}  // namespace tenon::profile

#include "profile/tables.h"

#include "base/check.h"

namespace tenon::profile {

namespace {

using C = Capability;

Profile make(const char* id, Fidelity fidelity, std::vector<Capability> capabilities, Graph graph,
             Specialization specialization) {
  const GraphRule& rule = graph_rule(graph);
  return {id,
          {},
          {},
          fidelity,
          std::move(capabilities),
          {rule.loader, graph, rule.loop, specialization, {}}};
}

Profile bound(Profile profile, const char* artifact, const char* config) {
  profile.artifact_fingerprint = artifact;
  profile.config_fingerprint = config;
  return profile;
}

}  // namespace

const GraphRule& graph_rule(Graph graph) {
  // Indexed by the enum.
  static const std::vector<GraphRule> rules = {
      {Graph::gemma4, Loader::safetensors, Loop::autoregressive, {C::gemma4_graph}},
      {Graph::minicpm5, Loader::safetensors, Loop::autoregressive, {C::minicpm5_graph}},
      {Graph::qwen35,
       Loader::safetensors,
       Loop::autoregressive,
       {C::qwen35_graph, C::recurrent_state}},
      {Graph::qwen3, Loader::safetensors, Loop::autoregressive, {C::qwen3_graph}},
      {Graph::qwen3_moe, Loader::safetensors, Loop::autoregressive, {C::qwen3_moe_graph}},
      {Graph::diffusion_gemma, Loader::safetensors, Loop::diffusion, {C::diffusion_gemma_graph}},
      {Graph::glm52, Loader::colibri, Loop::autoregressive, {C::glm52_graph, C::streamed_experts}},
      {Graph::bert_encoder, Loader::safetensors, Loop::encode, {C::bert_encoder_graph}},
      {Graph::universal_dense,
       Loader::safetensors,
       Loop::autoregressive,
       {C::universal_dense_graph}},
  };
  const auto index = static_cast<size_t>(graph);
  CHECK(index < rules.size() && rules[index].graph == graph, "graph {}", index);
  return rules[index];
}

std::vector<Capability> derived_capabilities(const Composition& execution) {
  std::vector<Capability> list = {
      execution.loader == Loader::colibri ? C::colibri_container : C::safetensors,
      execution.loop == Loop::diffusion ? C::diffusion
      : execution.loop == Loop::encode  ? C::encode
                                        : C::autoregressive,
  };
  for (const Capability c : graph_rule(execution.graph).capabilities) list.push_back(c);
  if (execution.specialization == Specialization::generated) list.push_back(C::generated_graph);
  return list;
}

std::string join(std::span<const Capability> capabilities) {
  std::string text;
  for (const Capability c : capabilities)
    text += (text.empty() ? "" : ", ") + std::string(capability_name(c));
  return text;
}

// An entry is added only with parity (l1, l2) or measured (l3) evidence for exactly that revision.
std::span<const Profile> builtin_artifact_profiles() {
  static const std::vector<Profile> list = {
      bound(make("qwen3.8-27b-optiq-4bit", kL1,
                 {C::safetensors, C::autoregressive, C::qwen35_graph, C::recurrent_state,
                  C::vision_sidecar},
                 Graph::qwen35, Specialization::artifact),
            "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@b04599de95d7a9bfbd7f208d347c0f10d9432a42",
            "50117975cb405944"),
      bound(make("glm5.2-colibri-int4-int8-mtp", kL3,
                 {C::colibri_container, C::autoregressive, C::glm52_graph, C::streamed_experts},
                 Graph::glm52, Specialization::artifact),
            "hf:mateogrgic/GLM-5.2-colibri-int4-with-int8-mtp@"
            "3cc8db99b1b13fc79325d987ba3c1c430766b3b8",
            "8b49d0941e18f1b9"),
  };
  return list;
}

std::span<const Profile> family_profiles() {
  static const std::vector<Profile> list = {
      make("gemma4-generated", kL1,
           {C::safetensors, C::autoregressive, C::gemma4_graph, C::generated_graph}, Graph::gemma4,
           Specialization::generated),
      make("gemma4-dedicated", kL1, {C::safetensors, C::autoregressive, C::gemma4_graph},
           Graph::gemma4, Specialization::dedicated),
      make("minicpm5-dedicated", kL1, {C::safetensors, C::autoregressive, C::minicpm5_graph},
           Graph::minicpm5, Specialization::dedicated),
      make("qwen3.5-dedicated", kL1,
           {C::safetensors, C::autoregressive, C::qwen35_graph, C::recurrent_state}, Graph::qwen35,
           Specialization::dedicated),
      make("qwen3-dedicated", kL1, {C::safetensors, C::autoregressive, C::qwen3_graph},
           Graph::qwen3, Specialization::dedicated),
      make("qwen3-moe-dedicated", kL1, {C::safetensors, C::autoregressive, C::qwen3_moe_graph},
           Graph::qwen3_moe, Specialization::dedicated),
      make("diffusion-gemma-dedicated", kL2,
           {C::safetensors, C::diffusion, C::diffusion_gemma_graph}, Graph::diffusion_gemma,
           Specialization::dedicated),
      make("glm5.2-colibri", kL3,
           {C::colibri_container, C::autoregressive, C::glm52_graph, C::streamed_experts},
           Graph::glm52, Specialization::dedicated),
      make("bert-encoder", kL3, {C::safetensors, C::encode, C::bert_encoder_graph},
           Graph::bert_encoder, Specialization::dedicated),
      make("universal-dense", kL1, {C::safetensors, C::autoregressive, C::universal_dense_graph},
           Graph::universal_dense, Specialization::generic),
  };
  return list;
}

const Profile& family_profile(std::string_view id) {
  for (const Profile& each : family_profiles())
    if (each.id == id) return each;
  CHECK(false, "no family profile {}", id);
  return family_profiles().front();
}

}  // namespace tenon::profile

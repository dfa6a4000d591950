// `tenon info`: what a path is and how it would run, from headers alone.
#include "engine/loaded.h"

namespace tenon::engine {

namespace {

Json profile_json(const profile::Resolved& resolved) {
  const profile::Profile& p = *resolved.profile;
  Json capabilities = Json::array();
  for (profile::Capability c : p.required_capabilities) capabilities.push_back(capability_name(c));
  return {{"id", p.id},
          {"loader", loader_name(p.execution.loader)},
          {"graph", graph_name(p.execution.graph)},
          {"loop", loop_name(p.execution.loop)},
          {"specialization", specialization_name(p.execution.specialization)},
          {"fidelity",
           {{"tier", tier_name(p.fidelity.tier)},
            {"oracle", oracle_name(p.fidelity.oracle)},
            {"claim", claim_name(p.fidelity.claim)}}},
          {"required_capabilities", capabilities},
          {"exact_artifact", resolved.exact_artifact},
          {"artifact_fingerprint",
           resolved.artifact_fingerprint ? Json(*resolved.artifact_fingerprint) : Json()},
          {"config_fingerprint", resolved.config_fingerprint},
          {"model_type", resolved.model_type},
          {"reasons", resolved.reasons}};
}

// Elements and formats of all tensors, largest share first.
Json weights_json(const checkpoint::Weights& weights) {
  int64_t elements = 0;
  uint64_t bytes = 0;
  std::map<std::string, int> formats;
  for (const std::string& name : weights.names()) {
    const auto view = weights.find(name);
    int64_t count = 1;
    for (int64_t dim : view->shape) count *= dim;
    elements += count;
    bytes += view->bytes.size();
    ++formats[format_name(view->format)];
  }
  return {{"tensors", weights.names().size()},
          {"elements", elements},
          {"bytes", bytes},
          {"formats", formats}};
}

// Checks every tensor against the graph; cache bytes of a token, none in an encoder.
Result<double> audit(const Choice& choice, checkpoint::Checkpoint& checkpoint) {
  const graph::BuildOptions build{ops::make_audit_kernels(), choice.dtype, choice.kv};
  if (choice.resolved.profile->execution.loop == profile::Loop::encode) {
    TENON_OK(
        graph::build_encoder(choice.resolved, checkpoint.manifest(), checkpoint.weights(), build));
    return 0.0;
  }
  TENON_TRY(const auto model,
            graph::build(choice.resolved, checkpoint.manifest(), checkpoint.weights(), build));
  return model->caches().bytes_per_token();
}

}  // namespace

namespace {

Result<Json> inspect_named(const EngineOptions& options) {
  TENON_TRY(auto checkpoint, checkpoint::Checkpoint::open(options.model_path));
  TENON_TRY(const Choice choice, choose(options, *checkpoint, checkpoint->weights()));
  TENON_TRY(const auto card, make_card(options, *checkpoint));
  const bool has_head = graph::has_draft_head(checkpoint->weights());
  const Json weights = weights_json(checkpoint->weights());
  TENON_TRY(const double cache_bytes, audit(choice, *checkpoint));
  TENON_OK(checkpoint->weights().finish());
  const Json& config = checkpoint->manifest().config;
  return Json{{"path", options.model_path},
              {"name", card->name},
              {"container", checkpoint->manifest().container},
              {"profile", profile_json(choice.resolved)},
              {"weights", weights},
              {"cache_bytes_per_token", cache_bytes},
              {"context", config.value("max_position_embeddings", 0)},
              {"vocab_size", config.value("vocab_size", 0)},
              {"tokenizer", card->tokenizer != nullptr},
              {"chat_template", card->chat_template != nullptr},
              {"end_ids", card->end_ids},
              {"run",
               {{"device", choice.device_name},
                {"kernels", choice.kernels->name()},
                {"dtype", ops::dtype_name(choice.dtype)},
                {"kv", choice.kv.text()},
                {"draft_head", has_head}}}};
}

}  // namespace

Result<Json> inspect(const EngineOptions& options) try {
  auto found = inspect_named(options);
  if (found.ok() || found.error().message.starts_with("--")) return found;
  return in_file(std::move(found).error(), options.model_path);
} catch (const std::exception& e) {
  return internal("{}: {}", options.model_path, e.what());
}

}  // namespace tenon::engine

// A model on the engine thread: graph and weights with what describes them.
#pragma once
#include <memory>

#include "decode/decode.h"
#include "engine/engine.h"
#include "graph/graph.h"

namespace tenon::engine {

struct LoadedModel {
  std::shared_ptr<const Model> card;
  std::unique_ptr<graph::Model> graph;  // arrays inside: freed on the engine thread
  std::unique_ptr<decode::DraftSource> drafts;  // null: none; refers to graph
  std::optional<decode::StepCost> step_cost;  // with drafts
  uint64_t cache_bytes_max = 0;         // what the ledger may hand out
};

Error one_line(Error error);  // without control characters, of bounded length
// The error, with the file it is about in front unless it names that already.
Error in_file(Error error, const std::string& path);
// profile::resolve, whose errors then name the config's file.
Result<profile::Resolved> resolve_config(const profile::Manifest& manifest);

// Everything that must be chosen before weights are read; `inspect` prints it.
struct Choice {
  profile::Resolved resolved;
  mlx::core::Device device = mlx::core::Device::cpu;
  std::string device_name;
  std::shared_ptr<const ops::Kernels> kernels;
  mlx::core::Dtype dtype = mlx::core::float32;
  graph::KvScheme kv;
};
Result<Choice> choose(const EngineOptions& options, const checkpoint::Checkpoint& checkpoint,
                      const checkpoint::Weights& weights);

// Call on the thread that will use the model.
Result<LoadedModel> load_model(const EngineOptions& options);

// load_drafts.cpp: what --draft names; null for none. Takes what it needs of the target's weights.
Result<std::unique_ptr<decode::DraftSource>> load_drafts(const EngineOptions& options,
                                                         const Choice& choice, const Model& card,
                                                         checkpoint::Checkpoint& target,
                                                         graph::Model& model);

// card.cpp: names, words, ends and sampling defaults of a checkpoint.
Result<std::shared_ptr<Model>> make_card(const EngineOptions& options,
                                         const checkpoint::Checkpoint& checkpoint);
// Lays JSON fields in OpenAI's and transformers' spelling over sampling settings. Errors: invalid.
Status apply_sampling(const Json& fields, std::string_view where, SamplingParams& params);

}  // namespace tenon::engine

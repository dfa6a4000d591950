// Qwen3 with mixtures of experts: qwen3's attention, and in most layers a router over all experts
// instead of the dense feed-forward. Oracle: mlx-lm 0.32.2 models/qwen3_moe.py, which ignores
// rope_scaling; so does this graph.
#include <algorithm>

#include "graph/descriptors.h"
#include "graph/families.h"

namespace tenon::graph {

namespace {

constexpr const char* kWhere = "config.json";

Result<std::vector<int64_t>> dense_layers(const Json& config) {
  const auto list = config.find("mlp_only_layers");
  if (list == config.end() || list->is_null()) return std::vector<int64_t>();
  std::vector<int64_t> layers;
  for (const Json& i : list->is_array() ? *list : Json::array({Json()})) {
    if (!i.is_number_integer())
      return invalid("config.json mlp_only_layers must be a list of layer numbers")
          .at("mlp_only_layers");
    layers.push_back(i.get<int64_t>());
  }
  return layers;
}

Status describe_mixture(const Json& config, DecoderSpec& spec) {
  TENON_TRY(const int64_t num, json_int(config, "num_experts", kWhere, 0, 1 << 16));
  if (num == 0) return {};
  TENON_TRY(const int64_t top_k, json_int(config, "num_experts_per_tok", kWhere, 1, num));
  TENON_TRY(const int64_t width, json_int(config, "moe_intermediate_size", kWhere, 1, 1 << 24));
  TENON_TRY(const int64_t step, json_int_or(config, "decoder_sparse_step", kWhere, 1, 1, 10000));
  TENON_TRY(const bool renormalize, json_bool_or(config, "norm_topk_prob", kWhere, false));
  TENON_TRY(const std::vector<int64_t> dense, dense_layers(config));
  spec.mixture = {static_cast<int>(num), static_cast<int>(top_k), static_cast<int>(width),
                  renormalize};
  for (int i = 0; i < spec.num_layers; ++i)
    spec.layers[i].mixture = (i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end();
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> build_qwen3_moe(const profile::Resolved&,
                                               const profile::Manifest& manifest,
                                               checkpoint::Weights& weights,
                                               const BuildOptions& options) {
  const Json& config = text_config(manifest.config);
  TENON_TRY(DecoderSpec spec, describe("qwen3", config));
  spec.rope.scaling = Json();
  TENON_OK(describe_mixture(config, spec));
  return build_decoder(spec, weights, options);
}

}  // namespace tenon::graph

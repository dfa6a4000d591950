// Qwen3: llama's blocks with a norm over each head of queries and keys. Oracle: mlx-lm 0.32.2
// models/qwen3.py.
#include "graph/descriptors.h"
#include "graph/families.h"

namespace tenon::graph {

Result<std::unique_ptr<Model>> build_qwen3(const profile::Resolved&,
                                           const profile::Manifest& manifest,
                                           checkpoint::Weights& weights,
                                           const BuildOptions& options) {
  TENON_TRY(const DecoderSpec spec, describe("qwen3", text_config(manifest.config)));
  return build_decoder(spec, weights, options);
}

}  // namespace tenon::graph

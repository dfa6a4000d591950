// MiniCPM5: a llama of fixed sizes whose heads together are wider than its hidden state (16 x 128
// against 1536), without MiniCPM's scaling factors. Oracle: mlx-lm 0.32.2 models/llama.py.
#include "graph/descriptors.h"
#include "graph/families.h"

namespace tenon::graph {

Result<std::unique_ptr<Model>> build_minicpm5(const profile::Resolved&,
                                              const profile::Manifest& manifest,
                                              checkpoint::Weights& weights,
                                              const BuildOptions& options) {
  TENON_TRY(const DecoderSpec spec, describe("llama", text_config(manifest.config)));
  return build_decoder(spec, weights, options);
}

}  // namespace tenon::graph

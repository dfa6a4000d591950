// The universal dense transformer: llama and the types that differ from it by what a descriptor can
// say (graph/descriptors.cpp). Oracle: the mlx-lm 0.32.2 module of the same name.
#include "graph/descriptors.h"
#include "graph/families.h"

namespace tenon::graph {

namespace {

// Llama 3 GGUF files hold what RoPE does to each wavelength; empty: this one does not.
Result<std::vector<float>> rope_factors(checkpoint::Weights& weights) {
  std::vector<float> factors;
  if (!weights.has("rope_freqs.weight")) return factors;
  TENON_TRY(const WeightView view, weights.take("rope_freqs.weight"));
  const mx::array values = mx::contiguous(ops::dense_array(view, mx::float32));
  mx::eval(values);
  factors.assign(values.data<float>(), values.data<float>() + values.size());
  return factors;
}

}  // namespace

Result<std::unique_ptr<Model>> build_universal_dense(const profile::Resolved& resolved,
                                                     const profile::Manifest& manifest,
                                                     checkpoint::Weights& weights,
                                                     const BuildOptions& options) {
  TENON_TRY(DecoderSpec spec, describe(resolved.model_type, text_config(manifest.config)));
  // These types take the embedding for a head where the file has none.
  const bool by_file = resolved.model_type == "gemma3_text" || resolved.model_type == "minicpm";
  if (by_file && weights.has("lm_head.weight")) spec.tied = false;
  if (by_file && !weights.has("lm_head.weight")) spec.tied = true;
  if (manifest.container == "gguf") {
    spec.norm.plus_one = false;  // the file's writer has added it
    TENON_TRY(spec.rope.factors, rope_factors(weights));
  }
  return build_decoder(spec, weights, options);
}

}  // namespace tenon::graph

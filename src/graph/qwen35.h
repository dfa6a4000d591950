// What the Qwen3.5 family and its head for multi-token prediction share: the config, and the layer
// that attends. Source: mlx-lm 0.32.2 models/qwen3_5.py, qwen3_next.py.
#pragma once
#include "graph/decoder.h"
#include "graph/descriptors.h"

namespace tenon::graph {

struct Qwen35Config {
  DecoderSpec dense;  // what it shares with a plain decoder
  int interval = 4;   // layer i attends where (i + 1) % interval == 0
  ops::DeltaShape delta;
  bool is_delta(int layer) const { return (layer + 1) % interval != 0; }
};
Result<Qwen35Config> read_qwen35_config(const Json& text_config);

// o(attend(rope(norm(q)), rope(norm(k)), v) * sigmoid(gate)); q emits head and gate.
struct GatedMixer {
  ops::QkvProjection projection;
  ops::MatrixPtr o;
  ops::Attend how;
};
Result<GatedMixer> load_gated_mixer(Loader& loader, const std::string& at, const DecoderSpec& d,
                                    const NormKind& norm);
mx::array attend_gated(const ops::Kernels& kernels, const GatedMixer& mixer,
                       cache::LayerCache& cache, const mx::array& h, ops::Rows rows,
                       const ops::Rope& rope);
Result<ops::FeedForward> load_gated_feed_forward(Loader& loader, const std::string& at,
                                                 const DecoderSpec& d, const NormKind& norm);

// Checkpoints as published store norms as their distance from one; their convolutions, which
// converters turn around, tell them from converted ones. Works whatever was taken already.
bool norms_from_one(const checkpoint::Weights& weights);

}  // namespace tenon::graph

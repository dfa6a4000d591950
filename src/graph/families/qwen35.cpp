// Qwen3.5: a hybrid of gated delta layers and, every `full_attention_interval`-th, gated full
// attention. Oracle: mlx-lm 0.32.2 models/qwen3_5.py, qwen3_next.py, gated_delta.py (whose epsilon
// of a head's query and key is 1e-6 of the sum of squares, not of their mean).
//
//   h = embed(ids)
//   each layer:  h += mixer(rms_norm(h))
//                h += down(silu(gate) * up)      of  rms_norm(h)
//   mixer, full: o(attend(rope(norm(q)), rope(norm(k)), v) * sigmoid(gate)); q emits head and gate
//   mixer, delta: out(norm(delta_rule(silu(conv(qkv)), a, b)) * silu(z))
//   logits = head(rms_norm(h))
//
// The sections of mrope are one position each for text, so they change nothing.
#include <cmath>

#include "graph/families.h"
#include "graph/qwen35.h"

namespace tenon::graph {

namespace {

struct Layer {
  std::optional<GatedMixer> full;
  std::optional<ops::DeltaMixer> delta;
  ops::FeedForward feed_forward;
};

class Qwen35 final : public Model {
 public:
  Qwen35(Qwen35Config config, const BuildOptions& options)
      : c_(std::move(config)), kernels_(options.kernels), dtype_(options.dtype) {}
  Status load(Loader& loader, const BuildOptions& options);

  const ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array embed(const mx::array& ids) override {
    return kernels_->embed(ids, *embedding_, dtype_);
  }
  mx::array hidden(const mx::array& ids, ops::Rows rows, Taps* taps) override;
  mx::array logits(const mx::array& hidden) override { return kernels_->linear(hidden, *head_); }

 private:
  mx::array mix(const Layer& layer, int i, const mx::array& h, ops::Rows rows);
  Result<ops::DeltaMixer> load_delta(Loader& loader, const std::string& at);
  Result<Layer> load_layer(Loader& loader, int i);

  const Qwen35Config c_;
  ModelShape shape_;
  std::shared_ptr<const ops::Kernels> kernels_;
  mx::Dtype dtype_;
  NormKind norm_;
  ops::Rope rope_;
  ops::MatrixPtr embedding_, head_;
  std::vector<Layer> layers_;
  std::optional<ops::Norm> final_norm_;
  cache::CacheSet caches_;
};

mx::array Qwen35::mix(const Layer& layer, int i, const mx::array& h, ops::Rows rows) {
  const ops::Kernels& k = *kernels_;
  if (layer.delta) {
    const ops::DeltaInputs in = k.project_delta(h, *layer.delta);
    const mx::array y = caches_.layer(i).advance(in, *layer.delta, rows);
    return k.finish_delta(y, in.z, *layer.delta, h);
  }
  return attend_gated(k, *layer.full, caches_.layer(i), h, rows, rope_);
}

mx::array Qwen35::hidden(const mx::array& ids, ops::Rows rows, Taps* taps) {
  mx::array h = embed(ids);
  for (int i = 0; i < c_.dense.num_layers; ++i) {
    h = mix(layers_[i], i, h, rows);
    h = kernels_->feed_forward(h, layers_[i].feed_forward);
    if (taps) taps->see(i, h);
  }
  h = kernels_->norm(h, *final_norm_);
  if (taps) taps->see(c_.dense.num_layers, h);
  return h;
}

Result<ops::DeltaMixer> Qwen35::load_delta(Loader& loader, const std::string& at) {
  const ops::DeltaShape& s = c_.delta;
  const int width = c_.dense.hidden_size, value_dim = s.num_v_heads * s.v_dim;
  const std::string in = at + "linear_attn.";
  TENON_TRY(const auto norm, loader.norm(at + "input_layernorm", width, norm_));
  TENON_TRY(const auto qkv, loader.matrix(in + "in_proj_qkv", s.conv_dim(), width));
  TENON_TRY(const auto z, loader.matrix(in + "in_proj_z", value_dim, width));
  TENON_TRY(const auto b, loader.matrix(in + "in_proj_b", s.num_v_heads, width));
  TENON_TRY(const auto a, loader.matrix(in + "in_proj_a", s.num_v_heads, width));
  // Published as [conv_dim, 1, taps], converted as [conv_dim, taps, 1]: the same numbers in order.
  const auto stored = loader.weights().find(in + "conv1d.weight");
  const bool published = stored && stored->shape.size() == 3 && stored->shape[1] == 1;
  std::vector<int64_t> conv_shape{s.conv_dim(), s.taps, 1};
  if (published) std::swap(conv_shape[1], conv_shape[2]);
  TENON_TRY(const auto conv, loader.vector(in + "conv1d.weight", conv_shape));
  TENON_TRY(const auto a_log, loader.vector(in + "A_log", {s.num_v_heads}, mx::float32));
  TENON_TRY(const auto dt_bias, loader.vector(in + "dt_bias", {s.num_v_heads}));
  const NormKind own{c_.dense.norm.eps};  // stored as it is, whoever wrote the file
  TENON_TRY(const auto out_norm, loader.norm(in + "norm", s.v_dim, own));
  TENON_TRY(const auto out, loader.matrix(in + "out_proj", width, value_dim));
  return ops::DeltaMixer{
      s,     norm,    qkv,      z,  b, a, mx::reshape(conv, {s.conv_dim(), s.taps, 1}),
      a_log, dt_bias, out_norm, out};
}

Result<Layer> Qwen35::load_layer(Loader& loader, int i) {
  const DecoderSpec& d = c_.dense;
  const std::string at = fmt::format("model.layers.{}.", i);
  Layer layer;
  if (c_.is_delta(i)) {
    TENON_TRY(layer.delta, load_delta(loader, at));
  } else {
    TENON_TRY(layer.full, load_gated_mixer(loader, at, d, norm_));
  }
  TENON_TRY(layer.feed_forward, load_gated_feed_forward(loader, at, d, norm_));
  return layer;
}

// The names that the different writers use, and what is not text. Checkpoints as published store
// norms (but the mixers' own) as their distance from one; converted ones do not.
Result<NormKind> settle_names(checkpoint::Weights& weights, float eps) {
  weights.drop("vision_tower");
  weights.drop("model.visual");
  weights.spare("mtp.");  // a draft source may ask for it
  TENON_OK(weights.rename_prefix("model.language_model.", "model."));
  TENON_OK(weights.rename_prefix("language_model.model.", "model."));
  TENON_OK(weights.rename_prefix("language_model.lm_head.", "lm_head."));
  TENON_OK(weights.rename_prefix("language_model.mtp.", "mtp."));
  TENON_OK(weights.rename_prefix("model.mtp.", "mtp."));
  return NormKind{eps, norms_from_one(weights)};
}

// A norm whose weights are near zero was stored as its distance from one.
Status refuse_shifted(const ops::Norm& norm) {
  constexpr float kMeanMin = 0.25f;
  // NaN is the logits' to report.
  const float mean = mx::mean(mx::abs(mx::astype(*norm.weight, mx::float32))).item<float>();
  if (!(mean < kMeanMin)) return {};
  return corrupt(
      "model.norm.weight is near zero: this checkpoint stores norms as their distance from one, "
      "but "
      "its convolutions are already converted; convert it again from the published files");
}

Status Qwen35::load(Loader& loader, const BuildOptions& options) {
  const DecoderSpec& d = c_.dense;
  TENON_TRY(rope_, make_rope(d.rope));
  TENON_OK(kernels_->prepare(rope_));
  std::vector<cache::LayerPlan> plans(d.num_layers);
  for (int i = 0; i < d.num_layers; ++i)
    plans[i] = c_.is_delta(i)
                   ? cache::LayerPlan{"recurrent", {.dtype = options.dtype}, 0, c_.delta}
                   : cache::LayerPlan{"attention",
                                      options.kv.shape(i, d.num_kv_heads, d.head_dim, d.head_dim)};
  TENON_TRY(caches_, cache::CacheSet::make(plans, *kernels_));
  TENON_TRY(norm_, settle_names(loader.weights(), d.norm.eps));
  if (d.tied) loader.weights().drop("lm_head.");
  TENON_TRY(embedding_, loader.matrix("model.embed_tokens", d.vocab_size, d.hidden_size));
  for (int i = 0; i < d.num_layers; ++i) {
    TENON_TRY(Layer layer, load_layer(loader, i));
    layers_.push_back(std::move(layer));
  }
  TENON_TRY(final_norm_, loader.norm("model.norm", d.hidden_size, norm_));
  TENON_OK(refuse_shifted(*final_norm_));
  head_ = embedding_;
  if (!d.tied) {
    TENON_TRY(head_, loader.matrix("lm_head", d.vocab_size, d.hidden_size));
  }
  shape_ = {d.num_layers, d.hidden_size, d.vocab_size, d.context_len, loader.bytes()};
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> build_qwen35(const profile::Resolved&,
                                            const profile::Manifest& manifest,
                                            checkpoint::Weights& weights,
                                            const BuildOptions& options) {
  TENON_TRY(Qwen35Config config, read_qwen35_config(text_config(manifest.config)));
  auto model = std::make_unique<Qwen35>(std::move(config), options);
  Loader loader(weights, options);
  TENON_OK(model->load(loader, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tenon::graph

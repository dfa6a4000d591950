// Gemma 4: sliding and full attention layers of different head widths, the last of which attend to
// the keys of earlier ones; optional inputs of each layer's own, optional experts beside the dense
// feed-forward. Oracle: mlx-lm 0.32.2 models/gemma4_text.py.
//
//   h = embed(ids) * sqrt(E)
//   own = (norm(project(h) * E^-0.5) + embed_own(ids) * sqrt(W)) * 2^-0.5          [N, L, W]
//   each layer:  h += norm(o(attend(rope(norm(q)), rope(norm(k)), norm(v))))  of  norm(h)
//                h += norm(f),  f = mlp(norm(h))  or  norm(mlp(norm(h))) + norm(experts(norm(h)))
//                h += norm(project(gelu(gate(h)) * own[layer]))
//                h *= layer_scalar
//   logits = softcap(embed^T norm(h))
#include <cmath>

#include "graph/families.h"
#include "graph/gemma4_config.h"

namespace tenon::graph {

namespace {

struct Layer {
  ops::QkvProjection attention;
  int cache = 0;  // whose keys it attends to; its own where it projects any
  const ops::Rope* rope = nullptr;
  ops::Attend how;
  ops::MatrixPtr o;
  ops::Join join;
  ops::FeedForward dense;
  std::optional<ops::Moe> experts;  // beside the dense block
  ops::Join mixed;                  // of their sum
  ops::MatrixPtr own_gate, own_projection;
  ops::Join own_join;
  std::optional<mx::array> scalar;
};

class Gemma4 final : public Model {
 public:
  Gemma4(Gemma4Config config, const BuildOptions& options)
      : c_(std::move(config)), kernels_(options.kernels), dtype_(options.dtype) {}
  Status load(Loader& loader, const BuildOptions& options);

  const ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array embed(const mx::array& ids) override {
    return kernels_->embed(ids, *embedding_, dtype_);
  }
  mx::array hidden(const mx::array& ids, ops::Rows rows, Taps* taps) override;
  mx::array logits(const mx::array& hidden) override;

 private:
  mx::array own_inputs(const mx::array& ids, const mx::array& h) const;
  mx::array feed_forward(const Layer& layer, const mx::array& h) const;
  Status load_attention(Loader& loader, const std::string& at, int i, Layer& layer);
  Status load_feed_forward(Loader& loader, const std::string& at, int i, Layer& layer);
  Status load_experts(Loader& loader, const std::string& at, Layer& layer);
  Status load_own(Loader& loader, const std::string& at, Layer& layer);
  Status load_layers(Loader& loader);
  Result<ops::Norm> norm(Loader& loader, const std::string& path) {
    return loader.norm(path, c_.hidden_size, {c_.norm_eps});
  }

  const Gemma4Config c_;
  ModelShape shape_;
  std::shared_ptr<const ops::Kernels> kernels_;
  mx::Dtype dtype_;
  ops::Rope full_rope_, sliding_rope_;
  ops::MatrixPtr embedding_, head_, own_embedding_, own_projection_;
  std::optional<ops::Norm> own_norm_, final_norm_;
  std::vector<Layer> layers_;
  cache::CacheSet caches_;
};

mx::array times(const mx::array& x, double factor) {
  return x * ops::scalar_like(static_cast<float>(factor), x);
}

mx::array Gemma4::own_inputs(const mx::array& ids, const mx::array& h) const {
  const mx::Shape shape{ids.shape(0), c_.num_layers, c_.own_width};
  const mx::array looked_up = mx::reshape(
      times(kernels_->embed(ids, *own_embedding_, dtype_), std::sqrt(double(c_.own_width))), shape);
  const mx::array projected = mx::reshape(
      times(kernels_->linear(h, *own_projection_), std::pow(double(c_.hidden_size), -0.5)), shape);
  return times(kernels_->norm(projected, *own_norm_) + looked_up, std::pow(2.0, -0.5));
}

mx::array Gemma4::feed_forward(const Layer& layer, const mx::array& h) const {
  const mx::array dense = kernels_->feed_forward(h, layer.dense);
  if (!layer.experts) return dense;
  return kernels_->join(dense + kernels_->feed_forward(h, *layer.experts), h, layer.mixed);
}

mx::array Gemma4::hidden(const mx::array& ids, ops::Rows rows, Taps* taps) {
  const ops::Kernels& k = *kernels_;
  mx::array h = times(embed(ids), std::sqrt(double(c_.hidden_size)));
  std::optional<mx::array> own;
  if (c_.own_width > 0) own = own_inputs(ids, h);
  for (int i = 0; i < c_.num_layers; ++i) {
    const Layer& layer = layers_[i];
    const ops::Qkv qkv = k.project_qkv(h, layer.attention, rows, layer.rope);
    const mx::array out = caches_.layer(layer.cache).attend(qkv, rows, layer.how);
    h = k.linear_add(out, *layer.o, h, layer.join);
    h = feed_forward(layer, h);
    if (own) {
      const mx::array mine =
          mx::squeeze(mx::slice(*own, {0, i, 0}, {h.shape(0), i + 1, c_.own_width}), 1);
      const mx::array gated =
          k.gate(ops::Activation::gelu_tanh, k.linear(h, *layer.own_gate), mine);
      h = k.linear_add(gated, *layer.own_projection, h, layer.own_join);
    }
    h = h * *layer.scalar;
    if (taps) taps->see(i, h);
  }
  h = k.norm(h, *final_norm_);
  if (taps) taps->see(c_.num_layers, h);
  return h;
}

mx::array Gemma4::logits(const mx::array& hidden) {
  const mx::array y = kernels_->linear(hidden, *head_);
  return c_.logits_softcap > 0 ? kernels_->softcap(y, c_.logits_softcap) : y;
}

Status Gemma4::load_attention(Loader& loader, const std::string& at, int i, Layer& layer) {
  ops::QkvProjection& p = layer.attention;
  const int width = c_.hidden_size, head_dim = c_.head_dim(i), kv_heads = c_.kv_heads(i);
  const std::string in = at + "self_attn.";
  const NormKind kind{c_.norm_eps};
  p.num_heads = c_.num_heads, p.num_kv_heads = kv_heads, p.head_dim = head_dim;
  layer.cache = c_.donor(i);
  layer.rope = c_.is_sliding(i) ? &sliding_rope_ : &full_rope_;
  layer.how = {1.0f, c_.is_sliding(i) ? c_.window : 0};
  TENON_TRY(p.norm, norm(loader, at + "input_layernorm"));
  TENON_TRY(p.q, loader.matrix(in + "q_proj", c_.num_heads * head_dim, width));
  TENON_TRY(p.q_norm, loader.norm(in + "q_norm", head_dim, kind));
  if (layer.cache == i) {
    TENON_TRY(p.k, loader.matrix(in + "k_proj", kv_heads * head_dim, width));
    TENON_TRY(p.k_norm, loader.norm(in + "k_norm", head_dim, kind));
    if (!c_.values_are_keys(i)) {
      TENON_TRY(p.v, loader.matrix(in + "v_proj", kv_heads * head_dim, width));
    }
    p.v_norm = ops::Norm{{}, c_.norm_eps};
  }
  TENON_TRY(layer.o, loader.matrix(in + "o_proj", width, c_.num_heads * head_dim));
  TENON_TRY(layer.join.norm, norm(loader, at + "post_attention_layernorm"));
  return {};
}

Status Gemma4::load_feed_forward(Loader& loader, const std::string& at, int i, Layer& layer) {
  const int width = c_.hidden_size, inner = c_.ffn_width(i);
  ops::FeedForward& block = layer.dense;
  block.mlp.activation = ops::Activation::gelu_tanh;
  TENON_TRY(block.norm, norm(loader, at + "pre_feedforward_layernorm"));
  TENON_TRY(block.mlp.gate, loader.matrix(at + "mlp.gate_proj", inner, width));
  TENON_TRY(block.mlp.up, loader.matrix(at + "mlp.up_proj", inner, width));
  TENON_TRY(block.mlp.down, loader.matrix(at + "mlp.down_proj", width, inner));
  TENON_TRY(layer.mixed.norm, norm(loader, at + "post_feedforward_layernorm"));
  block.join = layer.mixed;
  return c_.num_experts > 0 ? load_experts(loader, at, layer) : Status();
}

Status Gemma4::load_experts(Loader& loader, const std::string& at, Layer& layer) {
  const int width = c_.hidden_size, inner = c_.expert_width;
  TENON_TRY(const auto dense_norm, norm(loader, at + "post_feedforward_layernorm_1"));
  layer.dense.join = {dense_norm, {}, false};
  ops::Moe block;
  TENON_TRY(block.norm, norm(loader, at + "pre_feedforward_layernorm_2"));
  TENON_TRY(const auto experts_norm, norm(loader, at + "post_feedforward_layernorm_2"));
  block.join = {experts_norm, {}, false};
  ops::Router& router = block.router;
  router.top_k = c_.top_k;
  router.weights = ops::Router::Weights::softmax_of_chosen;
  TENON_TRY(router.gate, loader.matrix(at + "router.proj", c_.num_experts, width));
  TENON_TRY(const auto scale, loader.vector(at + "router.scale", {width}));
  router.norm = ops::Norm{times(scale, std::pow(double(width), -0.5)), c_.norm_eps};
  TENON_TRY(router.expert_scale, loader.vector(at + "router.per_expert_scale", {c_.num_experts}));
  block.activation = ops::Activation::gelu_tanh;
  const std::string in = at + "experts.switch_glu.";
  if (loader.weights().has(in + "gate_up_proj.weight")) {
    TENON_TRY(const auto parts,
              loader.fused_experts(in + "gate_up_proj", c_.num_experts, {inner, inner}, width));
    block.gate = parts[0], block.up = parts[1];
  } else {
    TENON_TRY(block.gate, loader.experts(in + "gate_proj", "", c_.num_experts, inner, width));
    TENON_TRY(block.up, loader.experts(in + "up_proj", "", c_.num_experts, inner, width));
  }
  TENON_TRY(block.down, loader.experts(in + "down_proj", "", c_.num_experts, width, inner));
  layer.experts = std::move(block);
  return {};
}

Status Gemma4::load_own(Loader& loader, const std::string& at, Layer& layer) {
  if (c_.own_width == 0) return {};
  const int width = c_.hidden_size;
  TENON_TRY(layer.own_gate, loader.matrix(at + "per_layer_input_gate", c_.own_width, width));
  TENON_TRY(layer.own_projection, loader.matrix(at + "per_layer_projection", width, c_.own_width));
  TENON_TRY(layer.own_join.norm, norm(loader, at + "post_per_layer_input_norm"));
  return {};
}

Status Gemma4::load_layers(Loader& loader) {
  for (int i = 0; i < c_.num_layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    Layer layer;
    TENON_OK(load_attention(loader, at, i, layer));
    TENON_OK(load_feed_forward(loader, at, i, layer));
    TENON_OK(load_own(loader, at, layer));
    TENON_TRY(layer.scalar, loader.vector(at + "layer_scalar", {1}));
    layers_.push_back(std::move(layer));
  }
  return {};
}

Status Gemma4::load(Loader& loader, const BuildOptions& options) {
  TENON_TRY(full_rope_, make_rope(c_.full_rope));
  TENON_TRY(sliding_rope_, make_rope(c_.sliding_rope));
  for (ops::Rope* rope : {&full_rope_, &sliding_rope_}) TENON_OK(kernels_->prepare(*rope));
  std::vector<cache::LayerPlan> plans;
  for (int i = 0; i < c_.num_layers && c_.donor(i) == i; ++i)
    plans.push_back({"attention",
                     options.kv.shape(i, c_.kv_heads(i), c_.head_dim(i), c_.head_dim(i)),
                     c_.is_sliding(i) ? c_.window : 0});
  TENON_TRY(caches_, cache::CacheSet::make(plans, *kernels_));
  TENON_OK(settle_gemma4_names(loader.weights(), c_));
  const int width = c_.hidden_size;
  TENON_TRY(embedding_, loader.matrix("model.embed_tokens", c_.vocab_size, width));
  if (c_.own_width > 0) {
    const int all = c_.num_layers * c_.own_width;
    TENON_TRY(own_embedding_,
              loader.matrix("model.embed_tokens_per_layer", c_.own_vocab_size, all));
    TENON_TRY(own_projection_, loader.matrix("model.per_layer_model_projection", all, width));
    TENON_TRY(own_norm_,
              loader.norm("model.per_layer_projection_norm", c_.own_width, {c_.norm_eps}));
  }
  TENON_OK(load_layers(loader));
  TENON_TRY(final_norm_, norm(loader, "model.norm"));
  head_ = embedding_;
  if (!c_.tied) {
    TENON_TRY(head_, loader.matrix("lm_head", c_.vocab_size, width));
  }
  shape_ = {c_.num_layers, width, c_.vocab_size, c_.context_len, loader.bytes()};
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> build_gemma4(const profile::Resolved&,
                                            const profile::Manifest& manifest,
                                            checkpoint::Weights& weights,
                                            const BuildOptions& options) {
  TENON_TRY(Gemma4Config config, read_gemma4_config(manifest.config));
  auto model = std::make_unique<Gemma4>(std::move(config), options);
  Loader loader(weights, options);
  TENON_OK(model->load(loader, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tenon::graph

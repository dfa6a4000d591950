#include "graph/decoder.h"

#include <variant>

namespace tenon::graph {

namespace {

struct Layer {
  ops::QkvProjection attention;
  const ops::Rope* rope = nullptr;
  ops::Attend how;
  ops::MatrixPtr o;
  ops::Join join;
  std::variant<ops::FeedForward, ops::Moe> feed_forward;
};

class Decoder final : public Model {
 public:
  Decoder(const DecoderSpec& spec, const BuildOptions& options)
      : spec_(spec), kernels_(options.kernels), dtype_(options.dtype) {}
  Status load(Loader& loader, const BuildOptions& options);

  const ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array embed(const mx::array& ids) override {
    return kernels_->embed(ids, *embedding_, dtype_);
  }
  mx::array hidden(const mx::array& ids, ops::Rows rows, Taps* taps) override;
  mx::array logits(const mx::array& hidden) override;

 private:
  Status load_ropes();
  Result<Layer> load_layer(Loader& loader, int i);
  Status load_attention(Loader& loader, const std::string& at, Layer& layer);
  Result<ops::FeedForward> load_dense(Loader& loader, const std::string& at);
  Result<ops::Moe> load_mixture(Loader& loader, const std::string& at);
  // The norm `name` of a layer; none where the name is empty.
  Result<std::optional<ops::Norm>> norm_of(Loader& loader, const std::string& at,
                                           const std::string& name);

  const DecoderSpec spec_;
  ModelShape shape_;
  std::shared_ptr<const ops::Kernels> kernels_;
  mx::Dtype dtype_;
  ops::Rope rope_, local_rope_;
  ops::MatrixPtr embedding_, head_;
  std::vector<Layer> layers_;
  std::optional<ops::Norm> final_norm_;
  cache::CacheSet caches_;
};

mx::array Decoder::hidden(const mx::array& ids, ops::Rows rows, Taps* taps) {
  const ops::Kernels& k = *kernels_;
  mx::array h = embed(ids);
  if (spec_.embedding_scale) h = h * ops::scalar_like(*spec_.embedding_scale, h);
  for (int i = 0; i < spec_.num_layers; ++i) {
    const Layer& layer = layers_[i];
    const ops::Qkv qkv = k.project_qkv(h, layer.attention, rows, layer.rope);
    const mx::array out = caches_.layer(i).attend(qkv, rows, layer.how);
    h = k.linear_add(out, *layer.o, h, layer.join);
    h = std::visit([&](const auto& block) { return k.feed_forward(h, block); }, layer.feed_forward);
    if (taps) taps->see(i, h);
  }
  h = k.norm(h, *final_norm_);
  if (taps) taps->see(spec_.num_layers, h);
  return h;
}

mx::array Decoder::logits(const mx::array& hidden) {
  const auto divided = [](const mx::array& x, std::optional<float> by) {
    return by ? x / ops::scalar_like(*by, x) : x;
  };
  const mx::array y = divided(kernels_->linear(divided(hidden, spec_.hidden_divisor), *head_),
                              spec_.logits_divisor);
  return spec_.logits_softcap > 0 ? kernels_->softcap(y, spec_.logits_softcap) : y;
}

Result<std::optional<ops::Norm>> Decoder::norm_of(Loader& loader, const std::string& at,
                                                  const std::string& name) {
  if (name.empty()) return std::optional<ops::Norm>();
  TENON_TRY(ops::Norm norm, loader.norm(at + name, spec_.hidden_size, spec_.norm));
  return std::optional(std::move(norm));
}

Status Decoder::load_attention(Loader& loader, const std::string& at, Layer& layer) {
  ops::QkvProjection& p = layer.attention;
  const int q_dim = spec_.num_heads * spec_.head_dim, kv_dim = spec_.num_kv_heads * spec_.head_dim;
  const int width = spec_.hidden_size;
  p.num_heads = spec_.num_heads;
  p.num_kv_heads = spec_.num_kv_heads;
  p.head_dim = spec_.head_dim;
  TENON_TRY(p.norm, norm_of(loader, at, spec_.attention_norm));
  if (spec_.fused_qkv) {
    TENON_TRY(const auto parts, loader.fused(at + "self_attn.qkv_proj", {q_dim, kv_dim, kv_dim},
                                             width, spec_.qkv_bias));
    p.q = parts[0], p.k = parts[1], p.v = parts[2];
  } else {
    TENON_TRY(p.q, loader.matrix(at + "self_attn.q_proj", q_dim, width, spec_.qkv_bias));
    TENON_TRY(p.k, loader.matrix(at + "self_attn.k_proj", kv_dim, width, spec_.qkv_bias));
    TENON_TRY(p.v, loader.matrix(at + "self_attn.v_proj", kv_dim, width, spec_.qkv_bias));
  }
  if (spec_.head_norms != DecoderSpec::HeadNorms::none) {
    p.norms_span_heads = spec_.head_norms == DecoderSpec::HeadNorms::whole;
    const auto dim = [&](int heads) {
      return p.norms_span_heads ? heads * p.head_dim : p.head_dim;
    };
    TENON_TRY(p.q_norm, loader.norm(at + "self_attn.q_norm", dim(p.num_heads), spec_.norm));
    TENON_TRY(p.k_norm, loader.norm(at + "self_attn.k_norm", dim(p.num_kv_heads), spec_.norm));
  }
  TENON_TRY(layer.o, loader.matrix(at + "self_attn.o_proj", width, q_dim, spec_.o_bias));
  TENON_TRY(layer.join.norm, norm_of(loader, at, spec_.attention_post_norm));
  layer.join.scale = spec_.residual_scale;
  return {};
}

Result<ops::FeedForward> Decoder::load_dense(Loader& loader, const std::string& at) {
  const int width = spec_.hidden_size, inner = spec_.ffn_size;
  ops::FeedForward block;
  block.mlp.activation = spec_.activation;
  TENON_TRY(block.norm, norm_of(loader, at, spec_.ffn_norm));
  if (spec_.fused_gate_up) {
    TENON_TRY(const auto parts,
              loader.fused(at + "mlp.gate_up_proj", {inner, inner}, width, spec_.ffn_bias));
    block.mlp.gate = parts[0], block.mlp.up = parts[1];
  } else {
    if (spec_.gated) {
      TENON_TRY(block.mlp.gate, loader.matrix(at + "mlp.gate_proj", inner, width, spec_.ffn_bias));
    }
    TENON_TRY(block.mlp.up, loader.matrix(at + spec_.up, inner, width, spec_.ffn_bias));
  }
  TENON_TRY(block.mlp.down, loader.matrix(at + spec_.down, width, inner, spec_.ffn_bias));
  TENON_TRY(block.join.norm, norm_of(loader, at, spec_.ffn_post_norm));
  block.join.scale = spec_.residual_scale;
  return block;
}

Result<ops::Moe> Decoder::load_mixture(Loader& loader, const std::string& at) {
  const MixtureSpec& m = spec_.mixture;
  const int width = spec_.hidden_size;
  ops::Moe block;
  TENON_TRY(block.norm, norm_of(loader, at, spec_.ffn_norm));
  TENON_TRY(block.router.gate, loader.matrix(at + "mlp.gate", m.num_experts, width));
  block.router.top_k = m.top_k;
  block.router.renormalize = m.renormalize;
  const auto experts = [&](const char* name, int out, int in) {
    return loader.experts(at + "mlp.switch_mlp." + name, at + "mlp.experts.{}." + name,
                          m.num_experts, out, in);
  };
  TENON_TRY(block.gate, experts("gate_proj", m.ffn_size, width));
  TENON_TRY(block.up, experts("up_proj", m.ffn_size, width));
  TENON_TRY(block.down, experts("down_proj", width, m.ffn_size));
  block.activation = spec_.activation;
  return block;
}

Result<Layer> Decoder::load_layer(Loader& loader, int i) {
  const LayerSpec& spec = spec_.layers[i];
  const std::string at = fmt::format("model.layers.{}.", i);
  Layer layer;
  if (spec.rotates) layer.rope = spec.local_rope ? &local_rope_ : &rope_;
  layer.how = {static_cast<float>(spec_.attention_scale), spec.window, spec_.score_softcap};
  TENON_OK(load_attention(loader, at, layer));
  if (spec.mixture) {
    TENON_TRY(layer.feed_forward, load_mixture(loader, at));
  } else {
    TENON_TRY(layer.feed_forward, load_dense(loader, at));
  }
  return layer;
}

Status Decoder::load_ropes() {
  TENON_TRY(rope_, make_rope(spec_.rope));
  TENON_OK(kernels_->prepare(rope_));
  if (!spec_.local_rope) return {};
  TENON_TRY(local_rope_, make_rope(*spec_.local_rope));
  return kernels_->prepare(local_rope_);
}

Status Decoder::load(Loader& loader, const BuildOptions& options) {
  TENON_OK(load_ropes());
  std::vector<cache::LayerPlan> plans;
  for (int i = 0; i < spec_.num_layers; ++i)
    plans.push_back({"attention",
                     options.kv.shape(i, spec_.num_kv_heads, spec_.head_dim, spec_.head_dim),
                     spec_.layers[i].window});
  TENON_TRY(caches_, cache::CacheSet::make(plans, *kernels_));

  loader.weights().drop("self_attn.rotary_emb.inv_freq");  // precomputed angles of old checkpoints
  if (spec_.tied) loader.weights().drop("lm_head.");  // some tied checkpoints store the head again
  TENON_TRY(embedding_, loader.matrix("model.embed_tokens", spec_.vocab_size, spec_.hidden_size));
  for (int i = 0; i < spec_.num_layers; ++i) {
    TENON_TRY(Layer layer, load_layer(loader, i));
    layers_.push_back(std::move(layer));
  }
  TENON_TRY(final_norm_, norm_of(loader, "model.", "norm"));
  head_ = embedding_;
  if (!spec_.tied) {
    TENON_TRY(head_, loader.matrix("lm_head", spec_.vocab_size, spec_.hidden_size));
  }
  shape_ = {spec_.num_layers, spec_.hidden_size, spec_.vocab_size, spec_.context_len,
            loader.bytes()};
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> build_decoder(const DecoderSpec& spec, checkpoint::Weights& weights,
                                             const BuildOptions& options) {
  auto model = std::make_unique<Decoder>(spec, options);
  Loader loader(weights, options);
  TENON_OK(model->load(loader, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace tenon::graph

// The universal dense transformer: pre-norm blocks of attention and a gated feed-forward, stated by
// a descriptor per model_type. Now: llama (and mistral, iquestcoder by remap). Oracle: mlx-lm
// 0.32.2 models/llama.py.
//
//   h = embed(ids)
//   each layer:  h += o(attend(rope(q), rope(k), v))   of  rms_norm(h)
//                h += down(silu(gate) * up)             of  rms_norm(h)
//   logits = head(rms_norm(h))                          head = the embedding when tied
#include "graph/families.h"
#include "graph/rope.h"

namespace tenon::graph {

namespace {

constexpr const char* kWhere = "config.json";

struct Descriptor {
  int hidden_size, num_layers, ffn_size, num_heads, num_kv_heads, head_dim, vocab_size, context_len;
  float norm_eps;
  bool attention_bias, mlp_bias, tied;
  RopeRequest rope;
};

Status refuse_sliding_window(const Json& config) {
  const auto types = config.find("layer_types");
  if (types == config.end() || !types->is_array()) return {};
  for (const Json& type : *types)
    if (type != "full_attention")
      return unsupported(
          "config.json layer_types: '{}' layers need a cache kind that is not built yet",
          type.is_string() ? type.get<std::string>() : type.dump());
  return {};
}

// What this graph would compute otherwise than the config says is refused, not ignored.
Status refuse_other_maths(const Json& config) {
  TENON_TRY(const std::string act, json_string_or(config, "hidden_act", kWhere, "silu"));
  if (act != "silu" && act != "swish")
    return unsupported("config.json hidden_act '{}': this graph has silu", act);
  TENON_TRY(const double rotary, json_number_or(config, "partial_rotary_factor", kWhere, 1));
  if (rotary != 1)
    return unsupported("config.json partial_rotary_factor {}: this graph rotates whole heads",
                       rotary);
  return refuse_sliding_window(config);
}

// rope_theta and rope_scaling, or both in rope_parameters as newer checkpoints spell them.
Status parse_rope(const Json& config, RopeRequest& rope) {
  const auto object = [&](const char* key) -> Result<Json> {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) return Json();
    if (!it->is_object()) return invalid("config.json {} must be an object", key);
    return *it;
  };
  TENON_TRY(const Json parameters, object("rope_parameters"));
  TENON_TRY(rope.scaling, object("rope_scaling"));
  if (rope.scaling.is_null()) rope.scaling = parameters;
  TENON_TRY(rope.base, json_number_or(parameters, "rope_theta", kWhere, 10000));
  TENON_TRY(rope.base, json_number_or(config, "rope_theta", kWhere, rope.base));
  if (!(rope.base > 1 && rope.base < 1e30))
    return invalid("config.json rope_theta {} must be above 1", rope.base);
  TENON_TRY(rope.traditional, json_bool_or(config, "rope_traditional", kWhere, false));
  return {};
}

// max_position_embeddings, for RoPE and as the context; 0: not stated. A config with one window for
// all layers is exact with full attention up to that many tokens, so the window bounds the context.
Status parse_positions(const Json& config, Descriptor& d) {
  TENON_TRY(const int stated,
            json_int_or(config, "max_position_embeddings", kWhere, 0, 1, 1 << 30));
  TENON_TRY(const int window, json_int_or(config, "sliding_window", kWhere, 0, 0, 1 << 30));
  d.context_len = window > 0 && (stated == 0 || window < stated) ? window : stated;
  d.rope.max_positions = stated > 0 ? stated : RopeRequest{}.max_positions;
  return {};
}

Result<Descriptor> parse_llama(const Json& config) {
  TENON_OK(refuse_other_maths(config));
  Descriptor d{};
  const auto positive = [&](std::string_view key) {
    return json_int(config, key, kWhere, 1, 1 << 24);
  };
  TENON_TRY(d.hidden_size, positive("hidden_size"));
  TENON_TRY(d.num_layers, json_int(config, "num_hidden_layers", kWhere, 1, 10000));
  TENON_TRY(d.ffn_size, positive("intermediate_size"));
  TENON_TRY(d.num_heads, positive("num_attention_heads"));
  TENON_TRY(d.num_kv_heads,
            json_int_or(config, "num_key_value_heads", kWhere, d.num_heads, 1, d.num_heads));
  TENON_TRY(d.head_dim,
            json_int_or(config, "head_dim", kWhere, d.hidden_size / d.num_heads, 1, 1 << 16));
  TENON_TRY(d.vocab_size, positive("vocab_size"));
  TENON_OK(parse_positions(config, d));
  TENON_TRY(const double eps, json_number(config, "rms_norm_eps", kWhere));
  if (!(eps >= 0 && eps < 1)) return invalid("config.json rms_norm_eps {} must be in [0, 1)", eps);
  d.norm_eps = static_cast<float>(eps);
  TENON_TRY(d.attention_bias, json_bool_or(config, "attention_bias", kWhere, false));
  TENON_TRY(d.mlp_bias, json_bool_or(config, "mlp_bias", kWhere, false));
  TENON_TRY(d.tied, json_bool_or(config, "tie_word_embeddings", kWhere, true));
  if (d.num_heads % d.num_kv_heads != 0)
    return invalid("config.json: {} attention heads are not a multiple of {} key/value heads",
                   d.num_heads, d.num_kv_heads);
  d.rope.dims = d.head_dim;
  TENON_OK(parse_rope(config, d.rope));
  return d;
}

struct Layer {
  ops::QkvProjection attention;
  ops::MatrixPtr o;
  ops::RmsNorm mlp_norm;
  ops::GatedMlp mlp;
};

class UniversalDense final : public Model {
 public:
  static Result<std::unique_ptr<Model>> build(const Descriptor& d, checkpoint::Weights& weights,
                                              const BuildOptions& options);

  const ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }

  mx::array hidden(const mx::array& ids, ops::Rows rows) override {
    const ops::Kernels& k = *kernels_;
    mx::array h = k.embed(ids, *embedding_, dtype_);
    for (int i = 0; i < d_.num_layers; ++i) {
      const Layer& layer = layers_[i];
      const ops::Qkv qkv = k.project_qkv(h, layer.attention, rows, rope_);
      const mx::array out = caches_.layer(i).attend(qkv.q, qkv.k, qkv.v, rows, attend_);
      h = k.linear_add(out, *layer.o, h);
      h = k.norm_mlp_add(h, layer.mlp_norm, layer.mlp);
    }
    return k.rms_norm(h, *final_norm_);
  }

  mx::array logits(const mx::array& hidden) override { return kernels_->linear(hidden, *head_); }

 private:
  explicit UniversalDense(const Descriptor& d) : d_(d) {}
  Status load(checkpoint::Weights& weights, const BuildOptions& options);

  const Descriptor d_;
  ModelShape shape_;
  std::shared_ptr<const ops::Kernels> kernels_;
  mx::Dtype dtype_ = mx::float32;
  ops::Rope rope_;
  ops::Attend attend_;
  ops::MatrixPtr embedding_, head_;
  std::vector<Layer> layers_;
  std::optional<ops::RmsNorm> final_norm_;
  cache::CacheSet caches_;
};

Status UniversalDense::load(checkpoint::Weights& weights, const BuildOptions& options) {
  const auto matrix = [&](const std::string& path, int out, int in,
                          bool bias) -> Result<ops::MatrixPtr> {
    TENON_TRY(const LinearSource source, weights.take_linear(path, out, in, bias));
    auto loaded = options.kernels->load_matrix(source, options.dtype);
    shape_.weight_bytes += loaded->bytes;
    return loaded;
  };
  const auto norm = [&](const std::string& path) -> Result<ops::RmsNorm> {
    TENON_TRY(const WeightView view, weights.take(path + ".weight", {d_.hidden_size}));
    return ops::RmsNorm{options.kernels->load_vector(view, options.dtype), d_.norm_eps};
  };
  const int q_dim = d_.num_heads * d_.head_dim, kv_dim = d_.num_kv_heads * d_.head_dim;

  weights.drop("self_attn.rotary_emb.inv_freq");  // precomputed angles of old checkpoints
  if (d_.tied) weights.drop("lm_head.");  // some tied checkpoints store the head again
  TENON_TRY(embedding_, matrix("model.embed_tokens", d_.vocab_size, d_.hidden_size, false));
  for (int i = 0; i < d_.num_layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    TENON_TRY(auto attention_norm, norm(at + "input_layernorm"));
    TENON_TRY(auto mlp_norm, norm(at + "post_attention_layernorm"));
    TENON_TRY(auto q, matrix(at + "self_attn.q_proj", q_dim, d_.hidden_size, d_.attention_bias));
    TENON_TRY(auto key, matrix(at + "self_attn.k_proj", kv_dim, d_.hidden_size, d_.attention_bias));
    TENON_TRY(auto v, matrix(at + "self_attn.v_proj", kv_dim, d_.hidden_size, d_.attention_bias));
    TENON_TRY(auto o, matrix(at + "self_attn.o_proj", d_.hidden_size, q_dim, d_.attention_bias));
    TENON_TRY(auto gate, matrix(at + "mlp.gate_proj", d_.ffn_size, d_.hidden_size, d_.mlp_bias));
    TENON_TRY(auto up, matrix(at + "mlp.up_proj", d_.ffn_size, d_.hidden_size, d_.mlp_bias));
    TENON_TRY(auto down, matrix(at + "mlp.down_proj", d_.hidden_size, d_.ffn_size, d_.mlp_bias));
    layers_.push_back({{attention_norm, q, key, v, d_.num_heads, d_.num_kv_heads, d_.head_dim},
                       o,
                       mlp_norm,
                       {gate, up, down}});
  }
  TENON_TRY(final_norm_, norm("model.norm"));
  head_ = embedding_;
  if (!d_.tied) {
    TENON_TRY(head_, matrix("lm_head", d_.vocab_size, d_.hidden_size, false));
  }
  return {};
}

Result<std::unique_ptr<Model>> UniversalDense::build(const Descriptor& d,
                                                     checkpoint::Weights& weights,
                                                     const BuildOptions& options) {
  std::unique_ptr<UniversalDense> model(new UniversalDense(d));
  model->kernels_ = options.kernels;
  model->dtype_ = options.dtype;
  model->shape_ = {d.num_layers, d.hidden_size, d.vocab_size, d.context_len, 0};
  // head_dim^-0.5 in double, as Python computes it, then float.
  model->attend_.scale = static_cast<float>(std::pow(static_cast<double>(d.head_dim), -0.5));
  TENON_TRY(model->rope_, make_rope(d.rope));
  TENON_OK(options.kernels->prepare(model->rope_));
  const ops::KvShape kv{d.num_kv_heads, d.head_dim, d.head_dim, options.kv_dtype};
  const std::vector<cache::LayerPlan> plans(d.num_layers, {"attention", kv});
  TENON_TRY(model->caches_, cache::CacheSet::make(plans, *options.kernels));
  TENON_OK(model->load(weights, options));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

Result<std::unique_ptr<Model>> build_universal_dense(const profile::Resolved& resolved,
                                                     const profile::Manifest& manifest,
                                                     checkpoint::Weights& weights,
                                                     const BuildOptions& options) {
  if (resolved.model_type != "llama")
    return unsupported(
        "model_type '{}': its universal-dense descriptor has no graph yet; llama has",
        resolved.model_type);
  TENON_TRY(const Descriptor d, parse_llama(manifest.config));
  return UniversalDense::build(d, weights, options);
}

}  // namespace tenon::graph

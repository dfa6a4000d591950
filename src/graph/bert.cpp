// BERT as an encoder. Source: Devlin et al., https://arxiv.org/abs/1810.04805; names of tensors and
// config fields are those of Hugging Face's BertModel.
//
//   h = norm(words(ids) + positions + types(0))
//   each layer:  h = norm(h + o(attend(q, k, v)))      every token sees all of its text
//                h = norm(h + down(gelu(up(h))))
#include <cmath>

#include "graph/config_fields.h"
#include "graph/loader.h"

namespace tenon::graph {

namespace {

constexpr const char* kWhere = "config.json";

struct Config {
  int hidden_size = 0, num_layers = 0, num_heads = 0, ffn_size = 0;
  int vocab_size = 0, context_len = 0, num_types = 0;
  float norm_eps = 0;
  ops::Activation activation = ops::Activation::gelu;
};

Result<Config> read_config(const Json& config) {
  Config c;
  const auto size = [&](const char* key, int fallback) {
    return json_int_or(config, key, kWhere, fallback, 1, 1 << 20);
  };
  TENON_TRY(c.hidden_size, size("hidden_size", 768));
  TENON_TRY(c.num_layers, size("num_hidden_layers", 12));
  TENON_TRY(c.num_heads, size("num_attention_heads", 12));
  TENON_TRY(c.ffn_size, size("intermediate_size", 3072));
  TENON_TRY(c.vocab_size, size("vocab_size", 30522));
  TENON_TRY(c.context_len, size("max_position_embeddings", 512));
  TENON_TRY(c.num_types, size("type_vocab_size", 2));
  TENON_TRY(const double eps, json_number_or(config, "layer_norm_eps", kWhere, 1e-12));
  c.norm_eps = static_cast<float>(eps);
  if (c.num_layers > 1024)
    return invalid("config.json num_hidden_layers {} is more than 1024", c.num_layers);
  if (c.hidden_size % c.num_heads != 0)
    return invalid("config.json hidden_size {} is not a multiple of num_attention_heads {}",
                   c.hidden_size, c.num_heads)
        .at("num_attention_heads");
  TENON_TRY(const std::string act, json_string_or(config, "hidden_act", kWhere, "gelu"));
  if (act == "gelu_new" || act == "gelu_pytorch_tanh")
    c.activation = ops::Activation::gelu_tanh;
  else if (act != "gelu")
    return unsupported("config.json hidden_act '{}': this graph has gelu, gelu_new", act);
  TENON_TRY(const std::string positions,
            json_string_or(config, "position_embedding_type", kWhere, "absolute"));
  if (positions != "absolute")
    return unsupported("config.json position_embedding_type '{}': this graph has absolute",
                       positions);
  return c;
}

struct Layer {
  ops::QkvProjection attention;
  ops::MatrixPtr o;
  ops::Norm attention_norm, ffn_norm;  // of the sums
  ops::FeedForward feed_forward;
};

class Bert final : public Encoder {
 public:
  Bert(const Config& config, const BuildOptions& options)
      : c_(config), kernels_(options.kernels), dtype_(options.dtype) {}
  Status load(Loader& loader);
  const ModelShape& shape() const override { return shape_; }
  mx::array encode(const mx::array& ids, ops::Rows rows) override;

 private:
  Result<Layer> load_layer(Loader& loader, const std::string& at);
  mx::array embed(const mx::array& ids, ops::Rows rows) const;

  const Config c_;
  ModelShape shape_;
  std::shared_ptr<const ops::Kernels> kernels_;
  mx::Dtype dtype_;
  ops::MatrixPtr words_;
  std::optional<mx::array> positions_;  // [context, E], the type of a lone text added
  std::optional<ops::Norm> norm_;
  std::vector<Layer> layers_;
  cache::CacheSet caches_;  // of one call: rows are closed at its end
};

mx::array Bert::embed(const mx::array& ids, ops::Rows rows) const {
  std::vector<int32_t> places;
  for (const ops::RowSlice& row : rows)
    for (int i = 0; i < row.len; ++i) places.push_back(row.offset + i);
  const mx::array index(places.begin(), {static_cast<int>(places.size())}, mx::int32);
  return kernels_->norm(kernels_->embed(ids, *words_, dtype_) + mx::take(*positions_, index, 0),
                        *norm_);
}

mx::array Bert::encode(const mx::array& ids, ops::Rows rows) {
  const ops::Kernels& k = *kernels_;
  ops::Attend how{1.0f / std::sqrt(static_cast<float>(c_.hidden_size / c_.num_heads))};
  how.whole = true;
  for (const ops::RowSlice& row : rows) caches_.open(row.slot);
  const auto close = [&] {
    for (const ops::RowSlice& row : rows) caches_.close(row.slot);
  };
  try {
    mx::array h = embed(ids, rows);
    for (int i = 0; i < c_.num_layers; ++i) {
      const Layer& layer = layers_[i];
      const ops::Qkv qkv = k.project_qkv(h, layer.attention, rows, nullptr);
      const mx::array out = caches_.layer(i).attend(qkv, rows, how);
      h = k.norm(k.linear_add(out, *layer.o, h), layer.attention_norm);
      h = k.norm(k.feed_forward(h, layer.feed_forward), layer.ffn_norm);
    }
    std::vector<mx::array> results = caches_.state();
    results.push_back(h);
    mx::eval(results);
    close();
    return h;
  } catch (...) {
    mx::synchronize();
    close();
    throw;
  }
}

Result<Layer> Bert::load_layer(Loader& loader, const std::string& at) {
  const int width = c_.hidden_size;
  const NormKind kind{c_.norm_eps, false, true};
  Layer layer;
  ops::QkvProjection& p = layer.attention;
  p.num_heads = p.num_kv_heads = c_.num_heads;
  p.head_dim = width / c_.num_heads;
  TENON_TRY(p.q, loader.matrix(at + "attention.self.query", width, width, true));
  TENON_TRY(p.k, loader.matrix(at + "attention.self.key", width, width, true));
  TENON_TRY(p.v, loader.matrix(at + "attention.self.value", width, width, true));
  TENON_TRY(layer.o, loader.matrix(at + "attention.output.dense", width, width, true));
  TENON_TRY(layer.attention_norm, loader.norm(at + "attention.output.LayerNorm", width, kind));
  ops::FeedForward& f = layer.feed_forward;
  f.mlp.activation = c_.activation;
  TENON_TRY(f.mlp.up, loader.matrix(at + "intermediate.dense", c_.ffn_size, width, true));
  TENON_TRY(f.mlp.down, loader.matrix(at + "output.dense", width, c_.ffn_size, true));
  TENON_TRY(layer.ffn_norm, loader.norm(at + "output.LayerNorm", width, kind));
  return layer;
}

Status Bert::load(Loader& loader) {
  checkpoint::Weights& weights = loader.weights();
  TENON_OK(weights.rename_prefix("bert.", ""));
  weights.drop("pooler.");
  weights.drop("cls.");
  weights.drop("embeddings.position_ids");
  const int width = c_.hidden_size;
  TENON_TRY(words_, loader.matrix("embeddings.word_embeddings", c_.vocab_size, width));
  TENON_TRY(const mx::array positions,
            loader.vector("embeddings.position_embeddings.weight", {c_.context_len, width}));
  TENON_TRY(const mx::array types,
            loader.vector("embeddings.token_type_embeddings.weight", {c_.num_types, width}));
  positions_ = positions + mx::slice(types, {0, 0}, {1, width});
  mx::eval(*positions_);
  TENON_TRY(norm_, loader.norm("embeddings.LayerNorm", width, {c_.norm_eps, false, true}));
  std::vector<cache::LayerPlan> plans;
  for (int i = 0; i < c_.num_layers; ++i) {
    TENON_TRY(Layer layer, load_layer(loader, fmt::format("encoder.layer.{}.", i)));
    layers_.push_back(std::move(layer));
    const int dim = width / c_.num_heads;
    plans.push_back({"attention", {c_.num_heads, dim, dim, dtype_}});
  }
  TENON_TRY(caches_, cache::CacheSet::make(plans, *kernels_));
  shape_ = {c_.num_layers, width, c_.vocab_size, c_.context_len, loader.bytes()};
  return {};
}

}  // namespace

Result<std::unique_ptr<Encoder>> build_encoder(const profile::Resolved& resolved,
                                               const profile::Manifest& manifest,
                                               checkpoint::Weights& weights,
                                               const BuildOptions& options) {
  TENON_OK(profile::assert_resolved(manifest, resolved));
  if (resolved.profile->execution.graph != profile::Graph::bert_encoder)
    return unsupported("profile {}: not an encoder; a BERT model turns text into vectors",
                       resolved.profile->id);
  TENON_TRY(const Config config, read_config(manifest.config));
  auto encoder = std::make_unique<Bert>(config, options);
  Loader loader(weights, options);
  TENON_OK(encoder->load(loader));
  return std::unique_ptr<Encoder>(std::move(encoder));
}

}  // namespace tenon::graph

// The head for multi-token prediction of Qwen3.5: one layer that attends, over the target's hidden
// states. For token t behind hidden state h:
//
//   x   = fc([norm(embed(t)), norm(h)])
//   h1  = x + o(attend(...) * sigmoid(gate))      of  norm(x), as the target's own layers attend
//   out = norm(h1 + down(silu(gate) * up))        of  norm(h1)
//
// The target embeds t and turns out into logits. Positions are those of the head's own cache.
// Source: mlx-vlm 0.7.10's qwen3_5_mtp.
#include "graph/qwen35.h"

namespace tenon::graph {

namespace {

constexpr const char* kWhere = "config.json";
constexpr const char* kOwn = "mtp.";  // before every name where the target's weights hold the head

class Qwen35Head final : public DraftHead {
 public:
  Qwen35Head(Qwen35Config config, const BuildOptions& options)
      : c_(std::move(config)), kernels_(options.kernels) {}
  Status load(Loader& loader, const BuildOptions& options, const std::string& at,
              const NormKind& norm);
  void set_block_size(int size) { block_size_ = size; }

  int hidden_size() const override { return c_.dense.hidden_size; }
  int block_size() const override { return block_size_; }
  uint64_t weight_bytes() const override { return weight_bytes_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array forward(const mx::array& embedded, const mx::array& hidden, ops::Rows rows) override;

 private:
  const Qwen35Config c_;
  std::shared_ptr<const ops::Kernels> kernels_;
  int block_size_ = 0;
  uint64_t weight_bytes_ = 0;
  ops::Rope rope_;
  std::optional<ops::Norm> embedding_norm_, hidden_norm_, final_norm_;
  ops::MatrixPtr fc_;
  GatedMixer mixer_;
  ops::FeedForward feed_forward_;
  cache::CacheSet caches_;
};

mx::array Qwen35Head::forward(const mx::array& embedded, const mx::array& hidden, ops::Rows rows) {
  const ops::Kernels& k = *kernels_;
  const mx::array x = k.linear(
      mx::concatenate({k.norm(embedded, *embedding_norm_), k.norm(hidden, *hidden_norm_)}, -1),
      *fc_);
  const mx::array h = attend_gated(k, mixer_, caches_.layer(0), x, rows, rope_);
  return k.norm(k.feed_forward(h, feed_forward_), *final_norm_);
}

Status Qwen35Head::load(Loader& loader, const BuildOptions& options, const std::string& at,
                        const NormKind& norm) {
  const DecoderSpec& d = c_.dense;
  TENON_TRY(rope_, make_rope(d.rope));
  TENON_OK(kernels_->prepare(rope_));
  TENON_TRY(
      caches_,
      cache::CacheSet::make(
          {{"attention", options.kv.shape(0, d.num_kv_heads, d.head_dim, d.head_dim)}}, *kernels_));
  TENON_TRY(embedding_norm_, loader.norm(at + "pre_fc_norm_embedding", d.hidden_size, norm));
  TENON_TRY(hidden_norm_, loader.norm(at + "pre_fc_norm_hidden", d.hidden_size, norm));
  TENON_TRY(fc_, loader.matrix(at + "fc", d.hidden_size, 2 * d.hidden_size));
  TENON_TRY(mixer_, load_gated_mixer(loader, at + "layers.0.", d, norm));
  TENON_TRY(feed_forward_, load_gated_feed_forward(loader, at + "layers.0.", d, norm));
  TENON_TRY(final_norm_, loader.norm(at + "norm", d.hidden_size, norm));
  weight_bytes_ = loader.bytes();
  return {};
}

// What this graph does not have.
Status check_head(const Json& config, int num_layers) {
  TENON_TRY(const bool dedicated,
            json_bool_or(config, "mtp_use_dedicated_embeddings", kWhere, false));
  if (dedicated)
    return unsupported(
        "config.json mtp_use_dedicated_embeddings true: heads that share the target's embedding "
        "are built");
  if (num_layers != 1)
    return unsupported("config.json mtp_num_hidden_layers {}: heads of one layer are built",
                       num_layers);
  return {};
}

}  // namespace

bool has_draft_head(const checkpoint::Weights& weights) {
  for (const std::string& name : weights.names())
    if (name.starts_with(kOwn)) return true;
  return false;
}

Result<std::unique_ptr<DraftHead>> build_draft_head(const profile::Manifest& manifest,
                                                    checkpoint::Weights& weights,
                                                    const BuildOptions& options) {
  const Json& config = manifest.config;
  const Json& text = text_config(config);
  TENON_TRY(const std::string type, json_string_or(config, "model_type", kWhere, ""));
  const bool drafter = type == "qwen3_5_mtp";
  if (!drafter && type != "qwen3_5" && type != "qwen3_5_text")
    return unsupported(
        "{}: model_type '{}' has no head for multi-token prediction that is built "
        "(qwen3_5_mtp, or mtp.* tensors in a qwen3_5 checkpoint)",
        manifest.path, type);
  const bool own = has_draft_head(weights);
  if (!drafter && !own)
    return unsupported("{}: the checkpoint has no mtp.* tensors; name a drafter's folder",
                       manifest.path);
  TENON_TRY(const int64_t num_layers, json_int_or(text, "mtp_num_hidden_layers", kWhere, 1, 0, 99));
  TENON_OK(check_head(text, static_cast<int>(num_layers)));
  TENON_TRY(const int64_t block, json_int_or(config, "block_size", kWhere, num_layers + 2, 2, 64));
  TENON_TRY(Qwen35Config c, read_qwen35_config(text));
  const NormKind norm{c.dense.norm.eps, drafter ? own : norms_from_one(weights)};
  auto head = std::make_unique<Qwen35Head>(std::move(c), options);
  head->set_block_size(static_cast<int>(block));
  Loader loader(weights, options);
  TENON_OK(head->load(loader, options, own ? kOwn : "", norm));
  return std::unique_ptr<DraftHead>(std::move(head));
}

}  // namespace tenon::graph

// DSpark's drafter: a block of G rows that sees its context and all of itself, and a small head
// that says what one draft means for the next. All of it is float32.
//
//   C = norm(taps @ W_c)                                        of every token in the context
//   x = [embed(anchor) @ tok_proj, mask_emb...] + block_pos     [G, d]
//   each layer:  x += o(attend(q(n(x)), k, v of [n(C), n(x)]))  no rotation, no mask; n = attn_norm
//                x += down(gelu(gate) * up)                     of  ff_norm(x)
//   U = target's head of (norm(x) @ out_proj)                   [G, V]
//   draft j:  e = w1[previous];  U_j + e @ w2    or, with s = tanh(s @ wH + e + bH),  U_j + s @ wO
//   confidence: sigmoid([norm(x)_j, e] @ w + b)
//
// What follows from C alone is kept: the keys and values of each layer. Matrices are stored as
// x @ W wants them. Source: the description of the layout; the idea is DFlash's,
// https://arxiv.org/abs/2602.06036.
#include <cmath>

#include "graph/block_drafter.h"
#include "graph/dspark_config.h"

namespace tenon::graph {

namespace {

struct Layer {
  ops::QkvProjection attention;
  ops::MatrixPtr o;
  ops::FeedForward feed_forward;
};

// The head over drafts, and how sure it is of them.
struct SequenceHead {
  ops::MatrixPtr previous, bias;  // w1 [V, r]; w2 or wO [V, r]
  ops::MatrixPtr state;  // wH [r, r]; null: a Markov chain
  std::optional<mx::array> state_bias;  // bH [r]
  ops::MatrixPtr confidence;  // [1, d + r]
  std::optional<mx::array> confidence_bias;  // [1]
};

mx::array first_rows(const mx::array& x, int count) {
  return x.shape(0) == count ? x : mx::slice(x, {0, 0}, {count, x.shape(1)});
}

class DsparkBlock final : public DraftBlock {
 public:
  DsparkBlock(const ops::Kernels& kernels, const SequenceHead& head, BlockPlaces places,
              mx::array states, mx::array logits)
      : k_(kernels),
        head_(head),
        places_(std::move(places)),
        states_(std::move(states)),
        logits_(std::move(logits)) {}

  DraftStep next(const mx::array& previous) override {
    const int num = previous.shape(0);
    const mx::array e = k_.embed(previous, *head_.previous, mx::float32);
    const mx::array bias = k_.linear(head_.state ? advance(e) : e, *head_.bias);
    const mx::array seen = mx::concatenate({places_.rows_of(states_, j_, num), e}, -1);
    const mx::array score = k_.linear(seen, *head_.confidence) + *head_.confidence_bias;
    DraftStep step{places_.rows_of(logits_, j_, num) + bias,
                   mx::reshape(mx::sigmoid(score), {num})};
    ++j_;
    return step;
  }

 private:
  mx::array advance(const mx::array& e) {
    mx::array in = e + *head_.state_bias;
    if (state_) in = k_.linear(first_rows(*state_, e.shape(0)), *head_.state) + in;
    state_ = mx::tanh(in);
    return *state_;
  }

  const ops::Kernels& k_;
  const SequenceHead& head_;
  const BlockPlaces places_;
  const mx::array states_, logits_;  // [M, d], [M, V], draft after draft
  std::optional<mx::array> state_;  // [R, r]
  int j_ = 0;
};

class Dspark final : public BlockDrafter {
 public:
  Dspark(DsparkConfig config, Model& target, const BuildOptions& options)
      : c_(std::move(config)),
        target_(target),
        target_dtype_(target.embed(mx::zeros({1}, mx::int32)).dtype()),
        kernels_(options.kernels),
        taps_(c_.tap_layers),
        how_{1.0f / std::sqrt(static_cast<float>(c_.width / c_.num_heads))} {
    how_.whole = true;
  }
  Status load(Loader& loader);

  const std::vector<int>& taps() const override { return taps_.layers(); }
  int max_drafts() const override { return c_.gamma; }
  // The first draft always goes out; what was calibrated counts before what is asked for.
  float min_confidence(int j, std::optional<float> wanted) const override {
    if (j == 0) return 0;
    return c_.thresholds.empty() ? wanted.value_or(0) : c_.thresholds[j];
  }
  uint64_t weight_bytes() const override { return weight_bytes_; }
  cache::CacheSet& caches() override { return caches_; }
  void append(const std::vector<mx::array>& tapped, ops::Rows rows) override;
  std::unique_ptr<DraftBlock> begin(std::span<const BlockRow> rows) override;

 private:
  Result<Layer> load_layer(Loader& loader, const std::string& at);
  Status load_head(Loader& loader);
  Result<ops::Norm> norm(Loader& loader, const std::string& name);
  mx::array embed_block(std::span<const BlockRow> rows);

  const DsparkConfig c_;
  Model& target_;
  const mx::Dtype target_dtype_;  // of its activations
  std::shared_ptr<const ops::Kernels> kernels_;
  const TapOrder taps_;
  ops::Attend how_;
  uint64_t weight_bytes_ = 0;
  ops::MatrixPtr context_, token_, out_;  // [d, m*E], [d, E], [E, d]
  std::optional<ops::Norm> context_norm_, out_norm_;
  std::optional<mx::array> masks_, positions_;  // [G - 1, d], [G, d]
  std::vector<Layer> layers_;
  SequenceHead head_;
  cache::CacheSet caches_;
};

void Dspark::append(const std::vector<mx::array>& tapped, ops::Rows rows) {
  const ops::Kernels& k = *kernels_;
  const mx::array c = k.norm(k.linear(taps_.join(tapped, mx::float32), *context_), *context_norm_);
  const mx::Shape heads{c.shape(0), c_.num_heads, c_.width / c_.num_heads};
  for (int i = 0; i < c_.num_layers; ++i) {
    const ops::QkvProjection& p = layers_[i].attention;
    const mx::array normed = k.norm(c, *p.norm);
    append_context(caches_.layer(i), mx::reshape(k.linear(normed, *p.k), heads),
                   mx::reshape(k.linear(normed, *p.v), heads), rows);
  }
}

mx::array Dspark::embed_block(std::span<const BlockRow> rows) {
  const int num = static_cast<int>(rows.size()), width = c_.width;
  const mx::array embedded = mx::astype(target_.embed(anchors_of(rows)), mx::float32);
  mx::array x = mx::reshape(kernels_->linear(embedded, *token_), {num, 1, width});
  if (masks_) {
    const mx::array masks = mx::reshape(*masks_, {1, c_.gamma - 1, width});
    x = mx::concatenate({x, mx::broadcast_to(masks, {num, c_.gamma - 1, width})}, 1);
  }
  return mx::reshape(x + *positions_, {num * c_.gamma, width});
}

std::unique_ptr<DraftBlock> Dspark::begin(std::span<const BlockRow> rows) {
  const ops::Kernels& k = *kernels_;
  const std::vector<ops::RowSlice> slices = block_slices(rows, c_.gamma, caches_);
  mx::array x = embed_block(rows);
  for (int i = 0; i < c_.num_layers; ++i) {
    const Layer& layer = layers_[i];
    const ops::Qkv qkv = k.project_qkv(x, layer.attention, slices, nullptr);
    const mx::array seen = caches_.layer(i).attend(qkv, slices, how_);
    x = k.feed_forward(k.linear_add(seen, *layer.o, x), layer.feed_forward);
  }
  BlockPlaces places(rows, c_.gamma, 0);
  const mx::array states = mx::take(k.norm(x, *out_norm_), places.index(), 0);
  const mx::array hidden = mx::astype(k.linear(states, *out_), target_dtype_);
  return std::make_unique<DsparkBlock>(k, head_, std::move(places), states,
                                       mx::astype(target_.logits(hidden), mx::float32));
}

Result<ops::Norm> Dspark::norm(Loader& loader, const std::string& name) {
  TENON_TRY(const mx::array weight, loader.vector(name, {c_.width}));
  return ops::Norm{weight, c_.eps};
}

Result<Layer> Dspark::load_layer(Loader& loader, const std::string& at) {
  const int d = c_.width;
  Layer layer;
  ops::QkvProjection& p = layer.attention;
  p.num_heads = p.num_kv_heads = c_.num_heads;
  p.head_dim = d / c_.num_heads;
  TENON_TRY(p.norm, norm(loader, at + "attn_norm"));
  TENON_TRY(p.q, loader.transposed(at + "q", d, d));
  TENON_TRY(p.k, loader.transposed(at + "k", d, d));
  TENON_TRY(p.v, loader.transposed(at + "v", d, d));
  TENON_TRY(layer.o, loader.transposed(at + "o", d, d));
  ops::FeedForward& f = layer.feed_forward;
  f.mlp.activation = ops::Activation::gelu_tanh;
  TENON_TRY(f.norm, norm(loader, at + "ff_norm"));
  TENON_TRY(f.mlp.gate, loader.transposed(at + "gate", c_.ffn_width, d));
  TENON_TRY(f.mlp.up, loader.transposed(at + "up", c_.ffn_width, d));
  TENON_TRY(f.mlp.down, loader.transposed(at + "down", d, c_.ffn_width));
  return layer;
}

Status Dspark::load_head(Loader& loader) {
  const int vocab = target_.shape().vocab_size, r = c_.rank;
  TENON_TRY(head_.previous, loader.table("markov.w1", vocab, r));
  if (c_.recurrent) {
    loader.weights().spare("markov.w2");
    TENON_TRY(head_.state, loader.transposed("rnn.wH", r, r));
    TENON_TRY(head_.state_bias, loader.vector("rnn.bH", {r}));
    TENON_TRY(head_.bias, loader.transposed("rnn.wO", vocab, r));
  } else {
    TENON_TRY(head_.bias, loader.transposed("markov.w2", vocab, r));
  }
  TENON_TRY(head_.confidence, loader.transposed("conf.w", 1, c_.width + r));
  TENON_TRY(head_.confidence_bias, loader.vector("conf.b", {1}));
  return {};
}

Status Dspark::load(Loader& loader) {
  const int d = c_.width, hidden = target_.shape().hidden_size, head_dim = d / c_.num_heads;
  const ops::KvShape kv{c_.num_heads, head_dim, head_dim, mx::float32};
  const std::vector<cache::LayerPlan> plans(c_.num_layers, {"attention", kv});
  TENON_TRY(caches_, cache::CacheSet::make(plans, *kernels_));
  TENON_TRY(context_, loader.transposed("W_c", d, taps_.num() * hidden));
  TENON_TRY(context_norm_, norm(loader, "ctx_norm"));
  TENON_TRY(token_, loader.transposed("tok_proj", d, hidden));
  if (c_.gamma > 1) {
    TENON_TRY(masks_, loader.vector("mask_emb", {c_.gamma - 1, d}));
  } else {
    loader.weights().spare("mask_emb");
  }
  TENON_TRY(positions_, loader.vector("block_pos", {c_.gamma, d}));
  for (int i = 0; i < c_.num_layers; ++i) {
    TENON_TRY(Layer layer, load_layer(loader, fmt::format("bb.{}.", i)));
    layers_.push_back(std::move(layer));
  }
  TENON_TRY(out_norm_, norm(loader, "out_norm"));
  TENON_TRY(out_, loader.transposed("out_proj", hidden, d));
  TENON_OK(load_head(loader));
  weight_bytes_ = loader.bytes();
  return {};
}

}  // namespace

Result<std::unique_ptr<BlockDrafter>> build_dspark(const profile::Manifest& manifest,
                                                   checkpoint::Weights& weights, Model& target,
                                                   const BuildOptions& options) {
  const std::string file = file_in(manifest, block_config_file(BlockLayout::dspark));
  TENON_TRY(DsparkConfig config, read_dspark_config(manifest.config, file, target.shape()));
  BuildOptions own = options;
  own.dtype = mx::float32;
  auto drafter = std::make_unique<Dspark>(std::move(config), target, own);
  Loader loader(weights, own);
  TENON_OK(drafter->load(loader));
  return std::unique_ptr<BlockDrafter>(std::move(drafter));
}

}  // namespace tenon::graph

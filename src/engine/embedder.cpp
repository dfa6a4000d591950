// Text to vectors: tokens through an encoder, then pooled as sentence-transformers' folders say
// (modules.json, 1_Pooling/config.json). Without those: the mean of a text's tokens, of length one.
#include <cmath>
#include <filesystem>

#include "base/handover.h"
#include "engine/loaded.h"

namespace tenon::engine {

namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;

constexpr int kStepTokens = 1024;  // of all texts in one forward
constexpr size_t kJsonBytesMax = 1 << 20;

struct Pooling {
  bool cls = false;  // the first token's state; else the mean of all
  bool normalizes = true;
};

Result<Pooling> read_pooling(const fs::path& folder) {
  Pooling pooling;
  const fs::path modules_file = folder / "modules.json";
  TENON_TRY(const Json modules, checkpoint::read_json_file(modules_file.string(), kJsonBytesMax));
  if (modules.is_null()) return pooling;
  if (!modules.is_array()) return corrupt("{}: must be a list", modules_file.string());
  pooling.normalizes = false;
  for (const Json& module : modules) {
    TENON_TRY(const std::string type, json_string_or(module, "type", "modules.json", ""));
    if (type.ends_with(".Normalize"))
      pooling.normalizes = true;
    else if (!type.ends_with(".Pooling") && !type.ends_with(".Transformer"))
      return unsupported("{}: module '{}' is not built", modules_file.string(), type);
  }
  const fs::path file = folder / "1_Pooling" / "config.json";
  TENON_TRY(const Json config, checkpoint::read_json_file(file.string(), kJsonBytesMax));
  if (config.is_null()) return pooling;
  TENON_TRY(const bool mean,
            json_bool_or(config, "pooling_mode_mean_tokens", file.string(), false));
  TENON_TRY(pooling.cls, json_bool_or(config, "pooling_mode_cls_token", file.string(), false));
  if (mean == pooling.cls)
    return unsupported("{}: pooling by the mean or by the first token is built", file.string());
  return pooling;
}

class LocalEmbedder final : public Embedder {
 public:
  LocalEmbedder(std::unique_ptr<graph::Encoder> encoder,
                std::shared_ptr<const text::Tokenizer> tokenizer, Pooling pooling)
      : encoder_(std::move(encoder)), tokenizer_(std::move(tokenizer)), pooling_(pooling) {}
  int width() const override { return encoder_->shape().hidden_size; }
  int context_len() const override { return encoder_->shape().context_len; }
  const char* pooling() const override { return pooling_.cls ? "cls" : "mean"; }

  Result<std::vector<Embedding>> embed(std::span<const std::string> texts) override {
    std::vector<Embedding> out;
    std::vector<int32_t> ids;
    std::vector<ops::RowSlice> rows;
    for (const std::string& text : texts) {
      TENON_TRY(const auto own, tokens_of(text, out.size() + rows.size()));
      if (!rows.empty() && ids.size() + own.size() > kStepTokens) flush(ids, rows, out);
      rows.push_back({static_cast<int>(rows.size()), static_cast<int>(ids.size()),
                      static_cast<int>(own.size()), 0});
      ids.insert(ids.end(), own.begin(), own.end());
    }
    if (!rows.empty()) flush(ids, rows, out);
    return out;
  }

 private:
  Result<std::vector<int32_t>> tokens_of(const std::string& text, size_t index) const {
    TENON_TRY(auto ids, tokenizer_->encode_with_specials(text));
    if (ids.empty()) return invalid("text {} has no tokens", index + 1);
    if (static_cast<int>(ids.size()) > context_len())
      return too_large("text {} has {} tokens, the model reads at most {}", index + 1, ids.size(),
                       context_len());
    for (const int32_t id : ids)
      if (id >= encoder_->shape().vocab_size)
        return corrupt("the tokenizer knows token {}, the model {} words", id,
                       encoder_->shape().vocab_size);
    return ids;
  }

  void flush(std::vector<int32_t>& ids, std::vector<ops::RowSlice>& rows,
             std::vector<Embedding>& out) {
    const mx::array flat(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
    const mx::array hidden = mx::contiguous(mx::astype(encoder_->encode(flat, rows), mx::float32));
    mx::eval(hidden);
    Handover::returned();
    for (const ops::RowSlice& row : rows)
      out.push_back(
          {pooled(hidden.data<float>() + static_cast<size_t>(row.start) * width(), row.len),
           row.len});
    ids.clear();
    rows.clear();
  }

  std::vector<float> pooled(const float* states, int num) const {
    std::vector<double> sum(static_cast<size_t>(width()), 0.0);
    for (int t = 0; t < (pooling_.cls ? 1 : num); ++t)
      for (int i = 0; i < width(); ++i) sum[i] += states[static_cast<size_t>(t) * width() + i];
    double scale = pooling_.cls ? 1.0 : 1.0 / num;
    if (pooling_.normalizes) {
      double squares = 0;
      for (const double x : sum) squares += x * x;
      scale = 1 / std::max(std::sqrt(squares), 1e-12);
    }
    std::vector<float> values;
    for (const double x : sum) values.push_back(static_cast<float>(x * scale));
    return values;
  }

  std::unique_ptr<graph::Encoder> encoder_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  const Pooling pooling_;
};

}  // namespace

Result<std::unique_ptr<Embedder>> load_embedder(const EngineOptions& options) try {
  TENON_TRY(auto checkpoint, checkpoint::Checkpoint::open(options.model_path));
  TENON_TRY(const Choice choice, choose(options, *checkpoint, checkpoint->weights()));
  mx::set_default_device(choice.device);
  TENON_TRY(const auto card, make_card(options, *checkpoint));
  if (!card->tokenizer) return not_found("{}: no tokenizer.json", options.model_path);
  TENON_TRY(const Pooling pooling, read_pooling(options.model_path));
  TENON_TRY(auto encoder,
            graph::build_encoder(choice.resolved, checkpoint->manifest(), checkpoint->weights(),
                                 {choice.kernels, choice.dtype, choice.kv}));
  TENON_OK(checkpoint->weights().finish());
  return std::unique_ptr<Embedder>(new LocalEmbedder(std::move(encoder), card->tokenizer, pooling));
} catch (const std::exception& e) {
  return internal("{}: {}", options.model_path, e.what());
}

}  // namespace tenon::engine

// The door of checkpoint: from a path to a manifest and named weights.
// Formats: a directory (config.json + *.safetensors, sharded with or without index) or one .gguf
// file. Files are mapped read-only, never copied; headers are validated before anything is
// allocated by their sizes. Every tensor is consumed exactly once: finish() lists what nobody took.
// Errors name file and tensor: not_found (absent file, shard), corrupt (cut, overlapping,
// misshapen), unsupported (format). Thread: one at a time; the WeightViews it hands out are
// immutable and shared.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/weight.h"
#include "profile/profile.h"

namespace tenon::checkpoint {

// Where the words of a model come from; text is built from it by the engine.
struct TextFiles {
  std::string tokenizer_json;  // bytes of tokenizer.json, empty if none
  Json tokenizer_config;  // tokenizer_config.json, null if none
  std::string
      chat_template;  // Jinja source: chat_template.jinja, tokenizer_config or GGUF; may be empty
  Json gguf_vocab;  // {model, pre, tokens, token_types, scores, merges, bos_id, ...}; null if none
};

class Weights;

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  // `path`: a directory or a .gguf file. Reads headers and small files only.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);

  virtual const profile::Manifest& manifest() const = 0;
  virtual const TextFiles& text() const = 0;
  // All stored tensors under their canonical names (Hugging Face's; GGUF names are translated).
  virtual Weights& weights() = 0;
  virtual uint64_t bytes() const = 0;  // of all tensor data
};

// The named tensors of a checkpoint, each taken exactly once.
class Weights {
 public:
  explicit Weights(std::vector<WeightView> tensors, std::string source);
  bool has(std::string_view name) const;
  std::optional<WeightView> find(std::string_view name) const;  // looks without taking
  std::vector<std::string> names() const;  // not yet taken, sorted

  // Errors: not_found, naming the tensor and the file; corrupt when taken twice or the shape
  // differs. `shape` may be empty (any).
  Result<WeightView> take(std::string_view name, std::vector<int64_t> shape = {});
  // `path`.weight with .scales/.biases when present (then affine with the config's bits and group
  // for that path) and .bias when `bias` asks for it. out/in in elements.
  Result<LinearSource> take_linear(std::string_view path, int64_t out, int64_t in,
                                   bool bias = false);
  // Declares tensors whose name contains `part` as deliberately unused.
  void drop(std::string_view part);
  // Error listing the first ten tensors that nobody took.
  Status finish() const;

  // The config's `quantization` object: default bits and group_size plus per-path overrides.
  void set_quantization(Json quantization) { quantization_ = std::move(quantization); }

 private:
  struct Slot {
    WeightView view;
    bool taken = false;
  };
  std::vector<std::pair<std::string, Slot>> slots_;  // sorted by name
  std::string source_;  // file or folder, for messages
  Json quantization_;
  Slot* slot(std::string_view name);
  const Slot* slot(std::string_view name) const;
};

}  // namespace tenon::checkpoint

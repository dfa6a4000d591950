// The door of checkpoint: from a path to a manifest and named weights.
// Formats: a directory (config.json + *.safetensors, sharded with or without index) or one .gguf
// file. Files are mapped read-only, never copied; headers are validated before anything is
// allocated by their sizes. Every tensor is consumed exactly once: finish() lists what nobody took.
// And back: write_safetensors() writes one file, convert() a whole directory.
// Errors name file and tensor: not_found (absent file, shard), corrupt (cut, overlapping,
// misshapen), unsupported (format). Thread: one at a time; the WeightViews it hands out are
// immutable and shared.
#pragma once
#include <functional>
#include <map>
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

// Stored name of a tensor -> path of the file that holds it.
using TensorFiles = std::map<std::string, std::string>;

class Weights;

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  // `path`: a directory or a .gguf file. Reads headers and small files only. config_file: what a
  // directory calls its config.
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path,
                                                  const char* config_file = "config.json");

  virtual const profile::Manifest& manifest() const = 0;
  virtual const TextFiles& text() const = 0;
  // All stored tensors under their canonical names (Hugging Face's; GGUF names are translated).
  virtual Weights& weights() = 0;
  virtual uint64_t bytes() const = 0;  // of all tensor data
};

// The named tensors of a checkpoint, each taken exactly once.
class Weights {
 public:
  // `source`: the model's path, for messages; files: of those tensors that have others.
  explicit Weights(std::vector<WeightView> tensors, std::string source, TensorFiles files = {});
  bool has(std::string_view name) const;
  std::optional<WeightView> find(std::string_view name) const;  // looks without taking
  std::vector<std::string> names() const;  // not yet taken, sorted
  const std::string& file_of(std::string_view name) const;  // the model's path if it is not there

  // Errors: not_found, naming the tensor and the file; corrupt when taken twice or the shape
  // differs. `shape` may be empty (any).
  Result<WeightView> take(std::string_view name, std::vector<int64_t> shape = {});
  // `path`.weight with .scales/.biases when present (then quantized as the config says for that
  // path) and .bias when `bias` asks for it. out/in in elements.
  Result<LinearSource> take_linear(std::string_view path, int64_t out, int64_t in,
                                   bool bias = false);
  // `num` matrices stored as one tensor [num, out, in] (with scales and biases likewise).
  Result<std::vector<LinearSource>> take_experts(std::string_view path, int64_t num, int64_t out,
                                                 int64_t in);
  // Names that begin with `from` begin with `to` from now on; quantization is still looked up under
  // the names that the config knows. Errors: corrupt, when a name is taken already.
  Status rename_prefix(std::string_view from, std::string_view to);
  // Declares tensors whose name contains `part` as deliberately unused.
  void drop(std::string_view part);
  // Declares them as unused unless somebody takes them after all.
  void spare(std::string_view part);
  // Error listing the first ten tensors that nobody took.
  Status finish() const;

  // The config's `quantization` object: defaults plus per-path overrides (quantization.h).
  void set_quantization(Json quantization) { quantization_ = std::move(quantization); }

 private:
  struct Slot {
    WeightView view;  // under its stored name
    bool taken = false;
    bool spared = false;
  };
  std::vector<std::pair<std::string, Slot>> slots_;  // sorted by name
  std::string source_;  // file or folder, for messages
  TensorFiles files_;

  Json quantization_;
  Slot* slot(std::string_view name);
  const Slot* slot(std::string_view name) const;
  Result<LinearSource> take_linear_shaped(std::string_view path, const std::vector<int64_t>& lead,
                                          int64_t in);
  Status take_quantized(std::string_view path, const std::vector<int64_t>& lead, int64_t in,
                        LinearSource& linear);
  void sort();
};

// A small file beside a checkpoint, whole; nothing, or null, when it does not exist. Errors name
// the file: invalid (not a regular file), too_large, corrupt.
Result<std::optional<std::string>> read_small_file(const std::string& path, size_t bytes_max);
Result<Json> read_json_file(const std::string& path, size_t bytes_max);

// One safetensors file of dense tensors, in the order given; it appears whole or not at all.
// Errors: unavailable, naming the path and the system's reason.
Status write_safetensors(const std::string& path, std::span<const WeightView> tensors,
                         const std::map<std::string, std::string>& metadata);

// How MLX stores a matrix; what an entry of a config's `quantization` object says.
struct Scheme {
  bool quantized = true;  // false: floats, and the rest says nothing
  int bits = 0;  // affine: 2, 3, 4, 5, 6, 8; mxfp4, nvfp4: 4; mxfp8: 8
  int group_size = 0;  // affine: 32, 64, 128; mxfp4, mxfp8: 32; nvfp4: 16
  QuantMode mode = QuantMode::affine;
  bool operator==(const Scheme&) const = default;
};
// Errors: invalid, saying what the mode allows.
Status check_scheme(const Scheme& scheme);

struct ConvertOptions {
  // Of every matrix whose rows are whole groups (the others become floats); none: as it is stored,
  // where GGUF blocks that are affine already are repacked bit for bit and other blocks become
  // floats.
  std::optional<Scheme> scheme;
  // By module path ("model.layers.0.mlp.down_proj"), with * and ?; the last that matches counts.
  struct Override {
    std::string pattern;
    Scheme scheme;
  };
  std::vector<Override> overrides;
  // Of all floats written, scales included: f32, f16 or bf16; none: as stored (scales and decoded
  // blocks of GGUF: f16). A matrix is rounded to it before it is quantized, as mlx-lm does.
  std::optional<Format> dtype;
  std::string tokenizer_json;  // for a GGUF file, which has none: text::tokenizer_json_of()
  uint64_t shard_bytes_max = 5'000'000'000;
  std::function<bool(double fraction)> on_progress;  // false stops; may be empty
};
struct Converted {
  int num_files = 0;
  uint64_t bytes = 0;  // of tensor data
  double bits_per_weight = 0;
};
// Writes `from` as a new directory `to` that mlx-lm and open() read: config.json with the
// `quantization` object, safetensors of at most shard_bytes_max each, tokenizer and template files
// (copied, or made from a GGUF file's metadata). GGUF llamas keep their rows in the file's order
// and say rope_traditional. Holds one matrix at a time. `to` appears complete by a rename, or not
// at all. Computes with MLX on the CPU, on the calling thread. Errors: invalid (`to` exists, an
// override that matches nothing or does not fit), cancelled, unavailable (disk), those of reading.
Result<Converted> convert(Checkpoint& from, const std::string& to, const ConvertOptions& options);

}  // namespace tenon::checkpoint

#include "checkpoint/checkpoint.h"

#include <filesystem>

#include "checkpoint/directory.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/mapping.h"

namespace tenon::checkpoint {

namespace {

class Opened final : public Checkpoint {
 public:
  explicit Opened(Loaded loaded)
      : manifest_(std::move(loaded.manifest)),
        text_(std::move(loaded.text)),
        bytes_(sum(loaded.tensors)),
        weights_(std::move(loaded.tensors), manifest_.path, std::move(loaded.files)) {
    weights_.set_quantization(std::move(loaded.quantization));
  }
  const profile::Manifest& manifest() const override { return manifest_; }
  const TextFiles& text() const override { return text_; }
  Weights& weights() override { return weights_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  static uint64_t sum(const std::vector<WeightView>& tensors) {
    uint64_t total = 0;
    for (const WeightView& tensor : tensors) total += tensor.bytes.size();
    return total;
  }
  const profile::Manifest manifest_;
  const TextFiles text_;
  const uint64_t bytes_;
  Weights weights_;
};

Result<Loaded> load_gguf(const std::string& path) {
  TENON_TRY(const Mapping mapping, map_file(path));
  TENON_TRY(GgufFile file, parse_gguf(mapping.bytes, mapping.keep, path));
  for (WeightView& tensor : file.tensors) tensor.from_file = true;
  return gguf_model(file, path);
}

Result<Loaded> load(const std::string& path, const char* config_file) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return not_found("{}: no such file or folder", path);
  if (std::filesystem::is_directory(status)) return load_directory(path, config_file);
  if (std::filesystem::path(path).extension() == ".gguf") return load_gguf(path);
  return unsupported("{}: expected a folder with {} and *.safetensors, or a .gguf file", path,
                     config_file);
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::string& path,
                                                     const char* config_file) {
  TENON_TRY(Loaded loaded, load(path, config_file));
  return std::unique_ptr<Checkpoint>(std::make_unique<Opened>(std::move(loaded)));
}

}  // namespace tenon::checkpoint

// Checkpoint headers under random bytes: every input is a model or an Error, never a crash, an
// overread or an allocation by a false size. Build with clang -fsanitize=fuzzer,address,undefined.
// The first byte picks the format; the rest is the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/layout.h"
#include "checkpoint/quantization.h"
#include "checkpoint/safetensors.h"

namespace {

using namespace tenon;
using namespace tenon::checkpoint;

void require(bool good) {
  if (!good) std::abort();
}

// What a reader promises of its views: inside the file, exactly as long as their shape says.
void check_views(const std::vector<WeightView>& views, std::span<const std::byte> file) {
  for (const WeightView& view : views) {
    require(!view.name.empty());
    const auto bytes = stored_bytes(view.shape, view.format, "fuzz", view.name);
    require(bytes.ok() && *bytes == view.bytes.size());
    if (view.bytes.empty()) continue;
    require(view.bytes.data() >= file.data());
    require(view.bytes.data() + view.bytes.size() <= file.data() + file.size());
  }
}

void take_all(std::vector<WeightView> tensors, Json quantization) {
  Weights weights(std::move(tensors), "fuzz");
  weights.set_quantization(std::move(quantization));
  for (const std::string& name : weights.names()) {
    const std::string_view stem = std::string_view(name).substr(0, name.rfind('.'));
    (void)weights.take_linear(stem, 8, 64);
    (void)weights.take(name);
  }
  (void)weights.finish();
}

void fuzz_safetensors(std::span<const std::byte> file) {
  auto views = parse_safetensors(file, nullptr, "fuzz");
  if (!views.ok()) return require(!views.error().message.empty());
  check_views(*views, file);
  take_all(std::move(*views), Json{{"bits", 4}, {"group_size", 32}});
}

void fuzz_gguf(std::span<const std::byte> file) {
  const auto parsed = parse_gguf(file, nullptr, "fuzz");
  if (!parsed.ok()) return require(!parsed.error().message.empty());
  check_views(parsed->tensors, file);
  for (const auto& [key, value] : parsed->metadata) {
    (void)gguf_int(*parsed, key, INT64_MIN, INT64_MAX);
    (void)gguf_number(*parsed, key);
    (void)gguf_strings(*parsed, key);
    (void)gguf_ints(*parsed, key);
    (void)gguf_floats(*parsed, key);
  }
  auto model = gguf_model(*parsed, "fuzz");
  if (!model.ok()) return require(!model.error().message.empty());
  (void)dump_json(model->manifest.config);
  (void)dump_json(model->text.gguf_vocab);
  take_all(std::move(model->tensors), Json());
}

// A config's quantization object, and each of its keys as a module path.
void fuzz_quantization(std::span<const std::byte> file) {
  const auto config = parse_json({reinterpret_cast<const char*>(file.data()), file.size()});
  if (!config.ok() || !config->is_object()) return;
  const auto quantization = find_quantization(*config, "fuzz");
  if (!quantization.ok() || !quantization->is_object()) return;
  for (const auto& [path, value] : quantization->items())
    (void)scheme_of(*quantization, path, "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto file = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 3) {
    case 0: fuzz_safetensors(file); break;
    case 1: fuzz_gguf(file); break;
    default: fuzz_quantization(file); break;
  }
  return 0;
}

// One GGUF file of random bytes: its header and metadata, then the model they describe.
#include "checkpoint/gguf.h"

#include "checkpoint/gguf_model.h"
#include "fuzz/views.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  using namespace tenon::checkpoint;
  const auto file = std::as_bytes(std::span(data, size));
  const auto parsed = parse_gguf(file, nullptr, "fuzz");
  if (!parsed.ok()) {
    fuzz::require(!parsed.error().message.empty());
    return 0;
  }
  fuzz::check_views(parsed->tensors, file);
  for (const auto& [key, value] : parsed->metadata) {
    (void)gguf_int(*parsed, key, INT64_MIN, INT64_MAX);
    (void)gguf_number(*parsed, key);
    (void)gguf_strings(*parsed, key);
    (void)gguf_ints(*parsed, key);
    (void)gguf_floats(*parsed, key);
  }
  auto model = gguf_model(*parsed, "fuzz");
  if (!model.ok()) {
    fuzz::require(!model.error().message.empty());
    return 0;
  }
  (void)dump_json(model->manifest.config);
  (void)dump_json(model->text.gguf_vocab);
  fuzz::take_all(std::move(model->tensors), Json());
  return 0;
}

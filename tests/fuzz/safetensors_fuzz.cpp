// One safetensors file of random bytes.
#include "checkpoint/safetensors.h"
#include "fuzz/views.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tenon;
  const auto file = std::as_bytes(std::span(data, size));
  auto views = checkpoint::parse_safetensors(file, nullptr, "fuzz");
  if (!views.ok()) {
    fuzz::require(!views.error().message.empty());
    return 0;
  }
  fuzz::check_views(*views, file);
  fuzz::take_all(std::move(*views), Json{{"bits", 4}, {"group_size", 32}});
  return 0;
}

// What the fuzzed readers of tensors share. Programs are built with clang's libFuzzer, ASan and
// UBSan (preset fuzz): every input is a result or an Error, never a crash, an overread or an
// allocation by a false size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"

namespace tenon::fuzz {

inline void require(bool good) {
  if (!good) std::abort();
}

// What a reader promises of its views: inside the file, exactly as long as their shape says.
inline void check_views(const std::vector<WeightView>& views, std::span<const std::byte> file) {
  for (const WeightView& view : views) {
    require(!view.name.empty());
    const auto bytes = checkpoint::stored_bytes(view.shape, view.format, "fuzz", view.name);
    require(bytes.ok() && *bytes == view.bytes.size());
    if (view.bytes.empty()) continue;
    require(view.bytes.data() >= file.data());
    require(view.bytes.data() + view.bytes.size() <= file.data() + file.size());
  }
}

inline void take_all(std::vector<WeightView> tensors, Json quantization) {
  checkpoint::Weights weights(std::move(tensors), "fuzz");
  weights.set_quantization(std::move(quantization));
  for (const std::string& name : weights.names()) {
    const std::string_view stem = std::string_view(name).substr(0, name.rfind('.'));
    (void)weights.take_linear(stem, 8, 64);
    (void)weights.take(name);
  }
  (void)weights.finish();
}

}  // namespace tenon::fuzz

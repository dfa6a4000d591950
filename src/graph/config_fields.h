// Fields that several descriptors read. Errors: invalid, unsupported, naming the field. Internal to
// graph.
#pragma once
#include <string_view>

#include "graph/decoder.h"

namespace tenon::graph {

constexpr const char* kConfig = "config.json";

Result<int> size_of(const Json& config, std::string_view key);  // 1 to 2^24
Result<int> size_or(const Json& config, std::string_view key, int fallback);
Result<float> number_of(const Json& config, std::string_view key);
// Layers that see a window, by layer_types; without the list none does.
Status describe_windows(const Json& config, DecoderSpec& spec);
// A config with one window for all layers is exact with full attention up to that many tokens, so
// the window bounds the context.
Status describe_context(const Json& config, DecoderSpec& spec);
// RoPE without any scaling, else unsupported.
Status plain_rope_only(const DecoderSpec& spec);

// descriptors_gemma.cpp
Result<DecoderSpec> describe_gemma(const Json& config);
Result<DecoderSpec> describe_gemma2(const Json& config);
Result<DecoderSpec> describe_gemma3(const Json& config);

}  // namespace tenon::graph

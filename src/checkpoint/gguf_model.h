// From a GGUF file's own spelling to Hugging Face's: config.json keys, tensor names, vocabulary.
// One row per architecture in gguf_arch.cpp; what has no row is refused, listing the rows.
// Pure function of a parsed file. Thread: any.
// Errors name the file and the key or tensor: unsupported (architecture, feature), corrupt (values
// that contradict each other), not_found (a required key or tensor).
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/gguf.h"
#include "checkpoint/loaded.h"

namespace tenon::checkpoint {

// A metadata key under "<architecture>." and the config key that takes its value.
struct GgufKey {
  std::string_view gguf, hf;
  enum class Kind { integer, number } kind;
  bool required;
  int64_t max;  // integers: 1 to max
};
struct GgufName {
  std::string_view gguf, hf;  // without ".weight" and ".bias"
};
// A key that must be absent or have this value, because the graph of this model_type has no other
// way.
struct GgufOnly {
  std::string_view gguf;
  int64_t value;
};
struct GgufArch {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // config.json's
  bool rope_traditional;        // q and k rows are stored for interleaved RoPE
  std::span<const GgufKey> keys;
  std::span<const GgufOnly> only;
  std::span<const GgufName> names;        // whole-model tensors
  std::span<const GgufName> block_names;  // after "blk.N." / "model.layers.N."
  std::string_view constants;  // JSON: config fields that the architecture implies
};
std::span<const GgufArch> gguf_archs();

// `path` as the caller gave it.
Result<Loaded> gguf_model(const GgufFile& file, const std::string& path);

// gguf_vocab.cpp: {model, pre, tokens, token_types, scores, merges, bos_id, ...}; null when the
// file has no tokenizer. `vocab_size`: rows of the embedding, which ids must stay below.
Result<Json> gguf_vocab(const GgufFile& file, int64_t vocab_size);

}  // namespace tenon::checkpoint

// GGUF tokenizer metadata as a tokenizer.json, so that one engine reads both. Internal to this
// room. Source: gguf's tokenizer.ggml.* keys; split rules as llama.cpp's table names them and as
// the original tokenizer.json files spell them.
#pragma once
#include <string>

#include "text/engine.h"

namespace tenon::text {

struct GgufTokenizer {
  std::string tokenizer_json;
  RepeatedIds repeated;
};

// Errors: unsupported (tokenizer model or split rule, by name), corrupt (says which entry).
Result<GgufTokenizer> convert_gguf_vocab(const GgufVocab& vocab);

}  // namespace tenon::text

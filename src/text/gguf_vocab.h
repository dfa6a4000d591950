// GGUF tokenizer metadata as a tokenizer.json, so that one engine reads both. Internal to this
// room. Source: gguf's tokenizer.ggml.* keys; split rules as llama.cpp's table names them and as
// the original tokenizer.json files spell them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "text/engine.h"

namespace tenon::text {

// Not base's Json: an ordered object looks keys up one by one, and a vocabulary has 150,000.
using FastJson = nlohmann::json;

// Kinds of tokens, as GGUF numbers them.
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

struct GgufTokenizer {
  std::string tokenizer_json;
  RepeatedIds repeated;
};

// What a tokenizer.json says besides its tokens.
struct GgufWords {
  FastJson normalizer, pre_tokenizer, decoder;  // null: none
  FastJson merges;  // pairs of tokens, first come first merged
  bool whole_words = false;  // a word that is a token needs no merges
  bool byte_fallback = false;  // characters that are no token become their bytes' tokens
  bool add_bos = false;  // unless the file says otherwise
};
// gguf_sentencepiece.cpp: model "llama". Errors: corrupt, unsupported, saying which entry.
Result<GgufWords> sentencepiece_words(const GgufVocab& vocab);

// Errors: unsupported (tokenizer model or split rule, by name), corrupt (says which entry).
Result<GgufTokenizer> convert_gguf_vocab(const GgufVocab& vocab);

}  // namespace tenon::text

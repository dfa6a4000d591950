// Tokenizers small enough to know by heart, for tests of this room.
//
// byte_tokenizer: ids 0-255 are the bytes, 256 is "he", then added tokens: 257 <|im_start|>,
// 258 <|im_end|>, 259 <s> (special) and 260 <think> (not special).
#pragma once
#include <gtest/gtest.h>

#include "text/text.h"

namespace tenon::text {

enum : int32_t { kHe = 256, kImStart, kImEnd, kBos, kThink, kByteVocab };

// GPT-2's printable stand-in of a byte.
inline std::string byte_alias(int byte) {
  const auto printable = [](int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

inline std::vector<int32_t> join(std::initializer_list<std::vector<int32_t>> parts) {
  std::vector<int32_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline GgufVocab byte_vocab() {
  GgufVocab vocab;
  vocab.model = "gpt2";
  vocab.pre = "gpt-2";
  for (int b = 0; b < 256; ++b) vocab.tokens.push_back(byte_alias(b));
  vocab.merges = {"h e"};
  for (const char* token : {"he", "<|im_start|>", "<|im_end|>", "<s>", "<think>"})
    vocab.tokens.push_back(token);
  vocab.token_types.assign(vocab.tokens.size(), 1);
  for (const int32_t id : {kImStart, kImEnd, kBos}) vocab.token_types[id] = 3;
  vocab.token_types[kThink] = 4;
  vocab.bos_id = kBos;
  vocab.eos_id = kImEnd;
  return vocab;
}

inline std::shared_ptr<const Tokenizer> must(Result<std::shared_ptr<const Tokenizer>> made) {
  if (!made.ok()) {
    ADD_FAILURE() << made.error().message;
    std::abort();
  }
  return *made;
}

inline std::shared_ptr<const Tokenizer> byte_tokenizer(bool add_bos = false) {
  GgufVocab vocab = byte_vocab();
  vocab.add_bos = add_bos;
  return must(Tokenizer::from_gguf(vocab));
}

// Llama-2's shape: spaces as U+2581, unknown characters as <0xNN>, a decoder that strips the first
// space, so a token's text depends on its place. Ids: 0 <unk>, 1 <s>, 2 "▁", 3 "a", 4 "b", 5 "▁a",
// 6-261 the bytes.
inline std::shared_ptr<const Tokenizer> spm_tokenizer() {
  Json vocab = Json::object();
  int id = 0;
  for (const char* token : {"<unk>", "<s>", "\u2581", "a", "b", "\u2581a"}) vocab[token] = id++;
  for (int b = 0; b < 256; ++b) vocab[fmt::format("<0x{:02X}>", b)] = id++;
  const auto special = [](int token_id, const char* content) {
    return Json{{"id", token_id},  {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  Json file = Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true,
      "continuing_subword_prefix": null, "end_of_word_suffix": null, "byte_fallback": true,
      "ignore_merges": false, "merges": [["▁", "a"]]}})");
  file["added_tokens"] = Json::array({special(0, "<unk>"), special(1, "<s>")});
  file["model"]["vocab"] = vocab;
  return must(Tokenizer::from_json(file.dump()));
}

}  // namespace tenon::text

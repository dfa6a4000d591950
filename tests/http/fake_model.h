// A model that needs no files: a byte-level tokenizer, so any text can come out, and a ChatML
// template. Ids: 0-255 the bytes, 256-259 merges ("he", "ll", "DE", "FG"), 260 <|im_start|>, 261
// <|im_end|> (the end), 262 <s>. The template raises on a conversation that begins with the
// assistant.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/json.h"
#include "engine/engine.h"

namespace tenon::fake {

enum : int32_t { kImStart = 260, kImEnd = 261, kBos = 262, kVocab = 263 };
constexpr int kWindow = 256;

// Byte-level BPE spells a byte that does not print as a letter from U+0100 on.
inline std::string byte_letter(int byte) {
  const auto prints = [](int b) { return (b > 32 && b < 127) || (b > 160 && b != 173); };
  int code = byte;
  if (!prints(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !prints(b);
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::string tokenizer_json() {
  Json model;
  model["type"] = "BPE";
  for (int b = 0; b < 256; ++b) model["vocab"][byte_letter(b)] = b;
  int32_t id = 256;
  for (const char* pair : {"he", "ll", "DE", "FG"}) {
    model["vocab"][pair] = id++;
    model["merges"].push_back(std::string(1, pair[0]) + " " + pair[1]);
  }
  Json root = Json::parse(R"({"version":"1.0","truncation":null,"padding":null,"normalizer":null,
    "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
      "use_regex":false},
    "post_processor":null,
    "decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,
      "use_regex":false}})");
  for (const char* token : {"<|im_start|>", "<|im_end|>", "<s>"}) {
    Json added =
        Json::parse(R"({"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,
      "special":true})");
    added["id"] = id++;
    added["content"] = token;
    root["added_tokens"].push_back(std::move(added));
  }
  root["model"] = std::move(model);
  return dump_json(root);
}

constexpr const char* kChatTemplate =
    "{%- if messages[0]['role'] == 'assistant' %}{{ raise_exception('A conversation must not begin "
    "with the "
    "assistant.') }}{% endif %}"
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] %}{{ message['content'] }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor "
    "%}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "fake model: %s\n", result.error().message.c_str());
  std::abort();
}

inline std::shared_ptr<const engine::Model> make_model(const std::string& name) {
  auto model = std::make_shared<engine::Model>();
  model->name = name;
  model->created = 1700000000;
  model->context_len = kWindow;
  model->vocab_size = kVocab;
  model->end_ids = {kImEnd};
  model->tokenizer = must(text::Tokenizer::from_json(tokenizer_json()));
  model->chat_template = must(text::ChatTemplate::compile(kChatTemplate, "fake template"));
  model->bos_token = "<s>";
  model->eos_token = "<|im_end|>";
  model->profile_id = "fake";
  model->kernels = "fake";
  model->dtype = "none";
  model->device = "none";
  return model;
}

}  // namespace tenon::fake

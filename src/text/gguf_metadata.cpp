// A GGUF vocabulary out of checkpoint's plain JSON (declared in text.h).
#include "text/gguf_vocab.h"

namespace tenon::text {

namespace {

template <class T>
std::vector<T> list_of(const Json& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() ? std::vector<T>{} : it->get<std::vector<T>>();
}

template <class T>
std::optional<T> maybe(const Json& metadata, const char* key) {
  const auto it = metadata.find(key);
  return it == metadata.end() || it->is_null() ? std::nullopt : std::optional<T>(it->get<T>());
}

}  // namespace

GgufVocab gguf_vocab_of(const Json& metadata) {
  GgufVocab v;
  v.model = metadata.value("model", "");
  v.pre = metadata.value("pre", "");
  v.tokens = list_of<std::string>(metadata, "tokens");
  v.token_types = list_of<int32_t>(metadata, "token_types");
  v.scores = list_of<float>(metadata, "scores");
  v.merges = list_of<std::string>(metadata, "merges");
  v.bos_id = maybe<int32_t>(metadata, "bos_id");
  v.eos_id = maybe<int32_t>(metadata, "eos_id");
  v.unk_id = maybe<int32_t>(metadata, "unk_id");
  v.pad_id = maybe<int32_t>(metadata, "pad_id");
  v.add_bos = maybe<bool>(metadata, "add_bos");
  v.add_eos = maybe<bool>(metadata, "add_eos");
  v.add_space_prefix = maybe<bool>(metadata, "add_space_prefix");
  return v;
}

Result<std::string> tokenizer_json_of(const GgufVocab& vocab) {
  TENON_TRY(GgufTokenizer converted, convert_gguf_vocab(vocab));
  return std::move(converted.tokenizer_json);
}

}  // namespace tenon::text

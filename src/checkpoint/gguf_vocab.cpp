// GGUF tokenizer metadata as plain JSON (declared in gguf_model.h).
#include "checkpoint/gguf_model.h"
#include "checkpoint/layout.h"

namespace tenon::checkpoint {

namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

struct IdKey {
  std::string_view gguf, out;
  bool
      must_exist;  // false: an id past the vocabulary means "none", as converters write for padding
};
constexpr IdKey kIds[] = {
    {"bos_token_id", "bos_id", true},      {"eos_token_id", "eos_id", true},
    {"eot_token_id", "eot_id", true},      {"eom_token_id", "eom_id", true},
    {"unknown_token_id", "unk_id", false}, {"padding_token_id", "pad_id", false},
};

std::string key_of(std::string_view name) { return fmt::format("{}{}", kPrefix, name); }

// Before unpacking: an array that belongs to the tokens has one element for each.
Status check_len(const GgufFile& file, const std::string& key, uint64_t tokens) {
  const GgufValue* value = gguf_find(file, key);
  const auto* array = value ? std::get_if<GgufArray>(value) : nullptr;
  if (!array || array->count == tokens) return {};
  return corrupt("{}: {} has {} elements for {} tokens", file.source, key, array->count, tokens);
}

// Copies an array under `out_key` when the file has it.
template <class T>
Status put_array(Json& out, const char* out_key, Result<std::optional<std::vector<T>>> read) {
  TENON_TRY(const auto values, std::move(read));
  if (!values) return {};
  Json::array_t array;
  array.reserve(values->size());
  for (const T& value : *values) array.emplace_back(value);
  out[out_key] = std::move(array);
  return {};
}

Status put_arrays(const GgufFile& file, int64_t vocab_size, Json& out) {
  const std::string tokens_key = key_of("tokens"), types_key = key_of("token_type");
  const std::string scores_key = key_of("scores"), merges_key = key_of("merges");
  TENON_OK(put_array(out, "tokens", gguf_strings(file, tokens_key)));
  if (!out.contains("tokens")) return not_found("{}: {} is missing", file.source, tokens_key);
  const uint64_t tokens = out["tokens"].size();
  // Fewer than rows is usual (padded embeddings); more would let an id index past the embedding.
  if (tokens == 0 || tokens > static_cast<uint64_t>(vocab_size))
    return corrupt("{}: {} has {} elements, the embedding {} rows", file.source, tokens_key, tokens,
                   vocab_size);
  TENON_OK(check_len(file, types_key, tokens));
  TENON_OK(check_len(file, scores_key, tokens));
  TENON_OK(put_array(out, "token_types", gguf_ints(file, types_key)));
  TENON_OK(put_array(out, "scores", gguf_floats(file, scores_key)));
  return put_array(out, "merges", gguf_strings(file, merges_key));
}

Status put_ids(const GgufFile& file, Json& out) {
  const int64_t tokens = static_cast<int64_t>(out["tokens"].size());
  for (const IdKey& id : kIds) {
    // -1 and its unsigned 32-bit form are how some writers say "none".
    TENON_TRY(const auto value, gguf_int(file, key_of(id.gguf), -1, UINT32_MAX));
    if (!value || *value == -1 || *value == UINT32_MAX) continue;
    if (*value < tokens) {
      out[std::string(id.out)] = *value;
    } else if (id.must_exist) {
      return corrupt("{}: {} is {}, but there are {} tokens", file.source, key_of(id.gguf), *value,
                     tokens);
    }
  }
  return {};
}

Status put_bool(const GgufFile& file, std::string_view name, const char* out_key, Json& out) {
  TENON_TRY(const auto value, gguf_bool(file, key_of(name)));
  if (value) out[out_key] = *value;
  return {};
}

}  // namespace

Result<Json> gguf_vocab(const GgufFile& file, int64_t vocab_size) {
  TENON_TRY(const auto model, gguf_string(file, key_of("model")));
  if (!model) return Json();
  TENON_TRY(const auto pre, gguf_string(file, key_of("pre")));
  Json out = Json::object();
  out["model"] = *model;
  if (pre) out["pre"] = *pre;
  TENON_OK(put_arrays(file, vocab_size, out));
  TENON_OK(put_ids(file, out));
  TENON_OK(put_bool(file, "add_bos_token", "add_bos", out));
  TENON_OK(put_bool(file, "add_eos_token", "add_eos", out));
  TENON_OK(put_bool(file, "add_space_prefix", "add_space_prefix", out));
  return out;
}

}  // namespace tenon::checkpoint

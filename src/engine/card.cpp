// What clients may know of a model, read from the checkpoint's small files.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "engine/loaded.h"

namespace tenon::engine {

namespace {

namespace fs = std::filesystem;

template <class T>
std::optional<T> maybe(const Json& vocab, const char* key) {
  const auto it = vocab.find(key);
  return it == vocab.end() || it->is_null() ? std::nullopt : std::optional<T>(it->get<T>());
}

// tokenizer_config.json spells a token as a string or as {"content": ...}.
std::string token_spelling(const Json& config, const char* key) {
  if (!config.is_object() || !config.contains(key)) return {};
  const Json& value = config.at(key);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return {};
}

void add_ids(const Json& config, std::vector<int32_t>& ids) {
  if (!config.is_object() || !config.contains("eos_token_id")) return;
  const Json& eos = config.at("eos_token_id");
  const auto add = [&](const Json& id) {
    if (id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX)
      ids.push_back(id.get<int32_t>());
  };
  if (eos.is_array())
    std::for_each(eos.begin(), eos.end(), add);
  else
    add(eos);
}

// The union of all ends that any file declares: honouring only one of them lets a model talk on.
std::vector<int32_t> end_ids(const checkpoint::Checkpoint& c, const Model& card) {
  std::vector<int32_t> ids;
  const profile::Manifest& m = c.manifest();
  add_ids(m.config, ids);
  if (m.config.contains("text_config")) add_ids(m.config["text_config"], ids);
  add_ids(m.generation_config, ids);
  for (const char* key : {"eos_id", "eot_id", "eom_id"})
    if (c.text().gguf_vocab.is_object())
      if (const auto id = maybe<int32_t>(c.text().gguf_vocab, key)) ids.push_back(*id);
  if (card.tokenizer && !card.eos_token.empty())
    if (const auto id = card.tokenizer->token_to_id(card.eos_token)) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string spelled(const text::Tokenizer& tokenizer, const Json& vocab, const char* key) {
  const auto id = maybe<int32_t>(vocab, key);
  return id ? std::string(tokenizer.token_bytes(*id)) : std::string();
}

Status read_words(const EngineOptions& options, const checkpoint::Checkpoint& c, Model& card) {
  const checkpoint::TextFiles& files = c.text();
  if (!files.tokenizer_json.empty()) {
    TENON_TRY(card.tokenizer, text::Tokenizer::from_json(files.tokenizer_json));
    card.bos_token = token_spelling(files.tokenizer_config, "bos_token");
    card.eos_token = token_spelling(files.tokenizer_config, "eos_token");
  } else if (files.gguf_vocab.is_object()) {
    TENON_TRY(card.tokenizer, text::Tokenizer::from_gguf(text::gguf_vocab_of(files.gguf_vocab)));
    card.bos_token = spelled(*card.tokenizer, files.gguf_vocab, "bos_id");
    card.eos_token = spelled(*card.tokenizer, files.gguf_vocab, "eos_id");
  }
  std::string source = files.chat_template, name = "chat template of " + card.name;
  if (!options.chat_template_file.empty()) {
    std::ifstream in(options.chat_template_file, std::ios::binary);
    if (!in) return not_found("--chat-template {}: cannot read it", options.chat_template_file);
    source.assign(std::istreambuf_iterator<char>(in), {});
    name = fs::path(options.chat_template_file).filename().string();
  }
  if (!source.empty()) {
    TENON_TRY(card.chat_template, text::ChatTemplate::compile(source, name));
  }
  return {};
}

int64_t newest_file_time(const std::string& path) {
  std::error_code ec;
  auto newest = fs::last_write_time(path, ec);
  if (fs::is_directory(path, ec))
    for (const auto& entry : fs::directory_iterator(path, ec))
      if (entry.is_regular_file(ec)) newest = std::max(newest, entry.last_write_time(ec));
  const auto system = std::chrono::file_clock::to_sys(newest);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

}  // namespace

Status apply_sampling(const Json& fields, std::string_view where, SamplingParams& p) {
  if (!fields.is_object()) return {};
  TENON_TRY(p.temperature, json_number_or(fields, "temperature", where, p.temperature));
  TENON_TRY(p.top_p, json_number_or(fields, "top_p", where, p.top_p));
  TENON_TRY(p.top_k, json_int_or(fields, "top_k", where, p.top_k, 0, INT32_MAX));
  TENON_TRY(p.min_p, json_number_or(fields, "min_p", where, p.min_p));
  TENON_TRY(p.xtc_probability, json_number_or(fields, "xtc_probability", where, p.xtc_probability));
  TENON_TRY(p.xtc_threshold, json_number_or(fields, "xtc_threshold", where, p.xtc_threshold));
  TENON_TRY(p.repetition_penalty,
            json_number_or(fields, "repetition_penalty", where, p.repetition_penalty));
  TENON_TRY(p.presence_penalty,
            json_number_or(fields, "presence_penalty", where, p.presence_penalty));
  TENON_TRY(p.frequency_penalty,
            json_number_or(fields, "frequency_penalty", where, p.frequency_penalty));
  const auto context = [&](const char* key, int now) {
    return json_int_or(fields, key, where, now, 0, INT32_MAX);
  };
  TENON_TRY(p.repetition_context, context("repetition_context_size", p.repetition_context));
  TENON_TRY(p.presence_context, context("presence_context_size", p.presence_context));
  TENON_TRY(p.frequency_context, context("frequency_context_size", p.frequency_context));
  const auto inside = [](double v, double low, double high) { return v >= low && v <= high; };
  if (!inside(p.temperature, 0, 5)) return invalid("{}.temperature must be in [0, 5]", where);
  if (!(p.top_p > 0 && p.top_p <= 1)) return invalid("{}.top_p must be in (0, 1]", where);
  if (!inside(p.min_p, 0, 1)) return invalid("{}.min_p must be in [0, 1]", where);
  if (!inside(p.xtc_probability, 0, 1))
    return invalid("{}.xtc_probability must be in [0, 1]", where);
  if (!(p.xtc_threshold > 0 && p.xtc_threshold <= 1))
    return invalid("{}.xtc_threshold must be in (0, 1]", where);
  if (!inside(p.repetition_penalty, kRepetitionPenaltyMin, 100))
    return invalid("{}.repetition_penalty must be in [{}, 100]", where, kRepetitionPenaltyMin);
  return {};
}

Result<std::shared_ptr<Model>> make_card(const EngineOptions& options,
                                         const checkpoint::Checkpoint& c) {
  auto card = std::make_shared<Model>();
  card->name = options.model_name.empty() ? fs::path(options.model_path).stem().string()
                                          : options.model_name;
  card->created = newest_file_time(options.model_path);
  TENON_OK(read_words(options, c, *card));
  card->end_ids = end_ids(c, *card);
  TENON_OK(
      apply_sampling(c.manifest().generation_config, "generation_config.json", card->sampling));
  TENON_OK(apply_sampling(options.sampling_overrides, "flags", card->sampling));
  return card;
}

}  // namespace tenon::engine

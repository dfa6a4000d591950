// What clients may know of a model, read from the checkpoint's small files.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "base/sampling.h"
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

std::string beside(const checkpoint::Checkpoint& c, const char* file) {
  return (fs::path(c.manifest().path) / file).string();
}

std::string template_file(const EngineOptions& options, const checkpoint::Checkpoint& c) {
  if (!options.chat_template_file.empty()) return options.chat_template_file;
  if (c.manifest().container == "gguf") return c.manifest().path;
  const std::string own = beside(c, "chat_template.jinja");
  return fs::exists(own) ? own : beside(c, "tokenizer_config.json");
}

Status read_words(const EngineOptions& options, const checkpoint::Checkpoint& c, Model& card) {
  const checkpoint::TextFiles& files = c.text();
  if (!files.tokenizer_json.empty()) {
    auto made = text::Tokenizer::from_json(files.tokenizer_json);
    if (!made.ok()) return in_file(std::move(made).error(), beside(c, "tokenizer.json"));
    card.tokenizer = std::move(made).value();
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
    auto made = text::ChatTemplate::compile(source, name);
    if (!made.ok()) return in_file(std::move(made).error(), template_file(options, c));
    card.chat_template = std::move(made).value();
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

Status apply_sampling(const Json& fields, std::string_view where, SamplingParams& params) {
  if (!fields.is_object()) return {};
  for (const SamplingField& field : sampling_fields()) {
    const auto it = fields.find(field.name);
    if (it == fields.end() || it->is_null()) continue;
    if (!it->is_number()) return invalid("{}.{} must be a number", where, field.name);
    const Status set = field.set(params, it->get<double>());
    if (!set.ok()) return invalid("{}.{} {}", where, field.name, set.error().message);
  }
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

#include "checkpoint/directory.h"

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "checkpoint/shards.h"

namespace tenon::checkpoint {

namespace {

constexpr size_t kConfigBytesMax = 4 << 20;
constexpr size_t kTokenizerConfigBytesMax = 16 << 20;
constexpr size_t kTokenizerBytesMax = 256 << 20;

std::string in_folder(const std::string& folder, const char* file) {
  return (std::filesystem::path(folder) / file).string();
}

Result<Json> read_object(const std::string& file, size_t bytes_max) {
  TENON_TRY(Json doc, read_json_file(file, bytes_max));
  if (!doc.is_object() && !doc.is_null()) return corrupt("{}: must be a JSON object", file);
  return doc;
}

// tokenizer_config.json's chat_template: one template, or a list of named ones of which "default"
// counts.
Result<std::string> template_of(const Json& tokenizer_config, const std::string& file) {
  if (!tokenizer_config.is_object()) return std::string();
  const auto it = tokenizer_config.find("chat_template");
  if (it == tokenizer_config.end() || it->is_null()) return std::string();
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return corrupt("{}: chat_template must be a string or a list", file);
  std::string chosen;
  for (const Json& entry : *it) {
    const bool good = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                      entry.contains("template") && entry["template"].is_string();
    if (!good) return corrupt("{}: chat_template entries need a name and a template", file);
    if (entry["name"] == "default") chosen = entry["template"].get<std::string>();
  }
  return chosen;
}

Result<TextFiles> read_text_files(const std::string& path) {
  TextFiles text;
  TENON_TRY(auto tokenizer, read_small_file(in_folder(path, "tokenizer.json"), kTokenizerBytesMax));
  if (tokenizer && tokenizer->empty())
    return corrupt("{}: empty", in_folder(path, "tokenizer.json"));
  if (tokenizer) text.tokenizer_json = std::move(*tokenizer);
  const std::string config_file = in_folder(path, "tokenizer_config.json");
  TENON_TRY(text.tokenizer_config, read_object(config_file, kTokenizerConfigBytesMax));
  TENON_TRY(auto jinja, read_small_file(in_folder(path, "chat_template.jinja"), kConfigBytesMax));
  if (jinja) {
    text.chat_template = std::move(*jinja);
  } else {
    TENON_TRY(text.chat_template, template_of(text.tokenizer_config, config_file));
  }
  return text;
}

}  // namespace

Result<Loaded> load_directory(const std::string& path, const char* config_name) {
  Loaded out;
  out.manifest.path = path;
  out.manifest.container = "safetensors";
  const std::string config_file = in_folder(path, config_name);
  TENON_TRY(out.manifest.config, read_object(config_file, kConfigBytesMax));
  if (out.manifest.config.is_null()) return not_found("{}: no such file", config_file);
  TENON_TRY(out.manifest.generation_config,
            read_object(in_folder(path, "generation_config.json"), kConfigBytesMax));
  TENON_TRY(out.manifest.kv_config,
            read_json_file(in_folder(path, "kv_config.json"), kConfigBytesMax));
  TENON_TRY(out.quantization, find_quantization(out.manifest.config, config_file));
  TENON_TRY(out.text, read_text_files(path));
  TENON_TRY(Shards shards, load_shards(path));
  out.tensors = std::move(shards.tensors);
  out.files = std::move(shards.files);
  return out;
}

}  // namespace tenon::checkpoint

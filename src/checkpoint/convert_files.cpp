#include "checkpoint/convert_files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace tenon::checkpoint {

namespace {

namespace fs = std::filesystem;

std::string in_folder(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// Everything beside the weights that a loader may read, by its ending. config.json is written anew.
bool travels(const fs::path& file) {
  const std::string name = file.filename().string(), ending = file.extension().string();
  if (name == "config.json" || name.ends_with(".index.json")) return false;
  for (std::string_view known : {".json", ".jinja", ".txt", ".model", ".tiktoken", ".jsonl"})
    if (ending == known) return true;
  return false;
}

Status copy_small_files(const std::string& from, const std::string& to) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    if (!entry.is_regular_file(error) || !travels(entry.path())) continue;
    fs::copy_file(entry.path(), fs::path(to) / entry.path().filename(), error);
    if (error)
      return unavailable("cannot copy {} to {}: {}", entry.path().string(), to, error.message());
  }
  if (error) return unavailable("cannot list {}: {}", from, error.message());
  return {};
}

// What transformers and mlx-lm must be told to use a bare tokenizer.json.
Json tokenizer_config(const Json& vocab, const Json& config) {
  // The generic class: a model's own one would rebuild the splitting of text its own way.
  Json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"clean_up_tokenization_spaces", false}};
  if (config.contains("max_position_embeddings"))
    out["model_max_length"] = config["max_position_embeddings"];
  constexpr std::pair<const char*, const char*> kNames[] = {{"bos_id", "bos_token"},
                                                            {"eos_id", "eos_token"},
                                                            {"unk_id", "unk_token"},
                                                            {"pad_id", "pad_token"}};
  for (const auto& [id, token] : kNames)
    if (vocab.contains(id)) out[token] = vocab["tokens"][vocab[id].get<size_t>()];
  return out;
}

}  // namespace

Status write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) return unavailable("cannot write {}: {}", path, std::strerror(errno));
  return {};
}

std::string readable(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json converted_config(const Json& config, const Json& quantization, std::optional<Format> dtype) {
  Json out = config;
  // MLX writes the object under both names.
  for (const char* key : {"quantization", "quantization_config"}) {
    out.erase(key);
    if (!quantization.is_null()) out[key] = quantization;
  }
  const char* name = dtype == Format::f32    ? "float32"
                     : dtype == Format::f16  ? "float16"
                     : dtype == Format::bf16 ? "bfloat16"
                                             : nullptr;
  for (const char* key : {"torch_dtype", "dtype"})
    if (name && out.contains(key)) out[key] = name;
  return out;
}

Status write_index(const std::string& folder, uint64_t total_bytes,
                   const std::map<std::string, std::string>& shard_of) {
  // Not base's Json: an ordered object looks keys up one by one.
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", shard_of}};
  return write_file(in_folder(folder, "model.safetensors.index.json"), index.dump(2) + "\n");
}

Status write_text_files(const Checkpoint& from, const std::string& tokenizer_json,
                        const std::string& folder) {
  if (from.manifest().container != "gguf") return copy_small_files(from.manifest().path, folder);
  const TextFiles& text = from.text();
  if (!tokenizer_json.empty()) {
    TENON_OK(write_file(in_folder(folder, "tokenizer.json"), tokenizer_json));
    TENON_OK(write_file(in_folder(folder, "tokenizer_config.json"),
                        readable(tokenizer_config(text.gguf_vocab, from.manifest().config))));
  }
  if (text.chat_template.empty()) return {};
  return write_file(in_folder(folder, "chat_template.jinja"), text.chat_template);
}

}  // namespace tenon::checkpoint

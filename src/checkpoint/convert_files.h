// The small files of a converted directory: config.json, the shard index, tokenizer and template.
// Thread: any. Errors: unavailable, naming the path and the system's reason; those of reading.
#pragma once
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"

namespace tenon::checkpoint {

Status write_file(const std::string& path, std::string_view text);

// The source's config with `quantization` in place of its own (null: none).
Json converted_config(const Json& config, const Json& quantization, std::optional<Format> dtype);
std::string readable(const Json& value);  // indented, ends in a newline

// `shard_of`: tensor -> file name.
Status write_index(const std::string& folder, uint64_t total_bytes,
                   const std::map<std::string, std::string>& shard_of);

// From a folder: its tokenizer, template and generation files as they are. From a GGUF file:
// `tokenizer_json`, and what else its metadata says.
Status write_text_files(const Checkpoint& from, const std::string& tokenizer_json,
                        const std::string& folder);

}  // namespace tenon::checkpoint

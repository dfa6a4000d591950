// A folder in Hugging Face's layout: config.json, safetensors, and the small files around them.
// Thread: any. Limits: config files 4 MiB, tokenizer_config.json 16 MiB, tokenizer.json 256 MiB.
// Errors name the file: not_found (the config), corrupt (not JSON, wrong type), too_large,
// unsupported (quantization of other producers), and those of load_shards.
#pragma once
#include <string>

#include "base/result.h"
#include "checkpoint/loaded.h"

namespace tenon::checkpoint {

Result<Loaded> load_directory(const std::string& path, const char* config_file);

}  // namespace tenon::checkpoint

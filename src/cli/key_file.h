// API keys from a file: one a line, `name:secret` or `secret`; # begins a comment line.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/server.h"

namespace tenon::cli {

// Errors: invalid, naming the line but never its text; a file without a key is an error, because
// an empty list would mean "open to all".
Result<std::vector<server::ApiKey>> parse_keys(std::string_view text, const std::string& file);
// Also warns when others on this machine can read the file.
Result<std::vector<server::ApiKey>> read_key_file(const std::string& file);

}  // namespace tenon::cli

#include "cli/key_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/log.h"

namespace tenon::cli {

namespace {

std::string_view trim(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

Result<server::ApiKey> parse_line(std::string_view line, const std::string& where, int number) {
  size_t colon = line.find(':');
  server::ApiKey key;
  bool named = colon != std::string_view::npos;
  key.name = named ? std::string(trim(line.substr(0, colon))) : fmt::format("key{}", number);
  key.secret = std::string(trim(named ? line.substr(colon + 1) : line));
  if (key.name.empty() || key.secret.empty()) {
    return invalid("{}: must be name:secret or secret", where);
  }
  if (!is_printable(key.secret)) {
    return invalid("{}: a secret has printable ASCII and no spaces", where);
  }
  return key;
}

}  // namespace

Result<std::vector<server::ApiKey>> parse_keys(std::string_view text, const std::string& file) {
  std::vector<server::ApiKey> keys;
  int number = 0;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::string where = fmt::format("--api-key-file {}, line {}", file, number);
    TENON_TRY(server::ApiKey key, parse_line(line, where, number));
    auto same = [&key](const server::ApiKey& other) { return other.name == key.name; };
    if (std::any_of(keys.begin(), keys.end(), same)) {
      return invalid("{}: the name '{}' is there already", where, key.name);
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return invalid("--api-key-file {}: holds no key", file);
  return keys;
}

Result<std::vector<server::ApiKey>> read_key_file(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) return not_found("--api-key-file: cannot read {}: {}", file, std::strerror(errno));
  struct stat status = {};
  if (stat(file.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0) {
    log_warn("--api-key-file {}: everybody on this machine can read it; chmod 600 it", file);
  }
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  return parse_keys(text, file);
}

}  // namespace tenon::cli

#include "cli/transcript.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace tenon::cli {

namespace {

Status check_messages(const Json& messages, const std::string& path) {
  if (!messages.is_array()) return invalid("{}: must be a JSON array of messages", path);
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string where = fmt::format("{}: messages[{}]", path, i);
    if (!messages[i].is_object()) return invalid("{}: must be an object", where);
    TENON_TRY(std::string role, json_string(messages[i], "role", where));
    TENON_TRY(std::string content, json_string(messages[i], "content", where));
    if (role != "system" && role != "user" && role != "assistant") {
      return invalid("{}: role '{}' must be system, user or assistant", where, role);
    }
  }
  return {};
}

}  // namespace

bool Transcript::has_system() const {
  return !messages_.empty() && messages_[0]["role"] == "system";
}

std::string Transcript::system() const {
  return has_system() ? messages_[0]["content"].get<std::string>() : "";
}

void Transcript::set_system(const std::string& text) {
  if (has_system()) messages_.erase(messages_.begin());
  if (text.empty()) return;
  Json message = {{"role", "system"}, {"content", text}};
  messages_.insert(messages_.begin(), std::move(message));
}

void Transcript::add(const std::string& role, const std::string& content) {
  messages_.push_back({{"role", role}, {"content", content}});
}

void Transcript::drop_last() {
  if (!messages_.empty()) messages_.erase(messages_.size() - 1);
}

void Transcript::clear() {
  std::string kept = system();
  messages_ = Json::array();
  set_system(kept);
}

Status Transcript::save(const std::string& path) const {
  std::ofstream file(path);
  file << messages_.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return unavailable("cannot write {}: {}", path, std::strerror(errno));
  return {};
}

Status Transcript::load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return not_found("cannot read {}: {}", path, std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<Json> parsed = parse_json(text);
  if (!parsed) return invalid("{}: {}", path, parsed.error().message);
  Json messages = *parsed;
  if (messages.is_object() && messages.contains("messages")) messages = messages["messages"];
  TENON_OK(check_messages(messages, path));
  messages_ = std::move(messages);
  return {};
}

}  // namespace tenon::cli

// The messages of a terminal chat, and their file: a JSON array as in a chat completion request.
#pragma once
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace tenon::cli {

class Transcript {
 public:
  const Json& messages() const { return messages_; }
  std::string system() const;             // empty: none
  void set_system(const std::string& text);  // empty removes it
  void add(const std::string& role, const std::string& content);
  void drop_last();
  void clear();  // keeps the system message

  Status save(const std::string& path) const;
  // Replaces everything. Accepts the array or an object with `messages`; text content only.
  Status load(const std::string& path);

 private:
  bool has_system() const;
  Json messages_ = Json::array();
};

}  // namespace tenon::cli

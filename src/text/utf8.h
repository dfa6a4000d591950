// Bytes of tokens to UTF-8 text, invalid parts replaced by U+FFFD. Internal to this room.
#pragma once
#include <string>
#include <string_view>

namespace tenon::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The first character of `bytes` (not empty): its length, or that of the longest invalid part that
// one U+FFFD stands for (Unicode 15, 3.9, "maximal subpart").
struct Utf8Head {
  enum Kind { character, broken, unfinished } kind;
  size_t len;
};
Utf8Head utf8_head(std::string_view bytes);

bool is_utf8(std::string_view bytes);

// Takes from the front of `bytes` all that later bytes cannot change; an unfinished character
// stays.
std::string take_certain(std::string& bytes);
// Takes everything: an unfinished character becomes one U+FFFD.
std::string take_all(std::string& bytes);

}  // namespace tenon::text

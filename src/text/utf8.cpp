#include "text/utf8.h"

namespace tenon::text {

Utf8Head utf8_head(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Head::character, 1};
  // Overlong forms, surrogates and values past U+10FFFF show in the second byte's range.
  size_t more = 0;
  unsigned char low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    more = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    more = 2;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    more = 3;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Head::broken, 1};
  }
  for (size_t i = 1; i <= more; ++i) {
    if (i == bytes.size()) return {Utf8Head::unfinished, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Head::broken, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Head::character, more + 1};
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Head head = utf8_head(bytes);
    if (head.kind != Utf8Head::character) return false;
    bytes.remove_prefix(head.len);
  }
  return true;
}

std::string take_certain(std::string& bytes) {
  std::string text;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Head head = utf8_head(rest);
    if (head.kind == Utf8Head::unfinished) break;
    text += head.kind == Utf8Head::character ? rest.substr(0, head.len) : kReplacement;
    rest.remove_prefix(head.len);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return text;
}

std::string take_all(std::string& bytes) {
  std::string text = take_certain(bytes);
  if (!bytes.empty()) text += kReplacement;
  bytes.clear();
  return text;
}

}  // namespace tenon::text

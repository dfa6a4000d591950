#include "text/marks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "text/utf8.h"

namespace tenon::text {

namespace {

constexpr char32_t kFirstMark = 0xFDD0;  // U+FDD0 to U+FDEF: noncharacters, for internal use
constexpr char32_t kLastMark = 0xFDEF;

std::string utf8_of(char32_t mark) {
  return {static_cast<char>(0xEF), static_cast<char>(0xB7),
          static_cast<char>(0x80 | (mark & 0x3F))};
}

// How a template's tojson(ensure_ascii=true) writes the mark.
std::string escape_of(char32_t mark) {
  return fmt::format("\\u{:04x}", static_cast<uint32_t>(mark));
}

std::string_view without_end_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

// For a key that is new: an ordered object would look for it first, key by key.
void append(Json& object, std::string key, Json value) {
  object.get_ref<Json::object_t&>().emplace_back(std::move(key), std::move(value));
}

}  // namespace

Result<Marks> Marks::choose(const Json& context, std::span<const std::string> spellings) {
  const std::string text = dump_json(context);
  std::vector<char32_t> free;
  for (char32_t mark = kFirstMark; mark <= kLastMark && free.size() < 2; ++mark)
    if (text.find(utf8_of(mark)) == std::string::npos &&
        text.find(escape_of(mark)) == std::string::npos)
      free.push_back(mark);
  if (free.size() < 2) return invalid("the messages use every noncharacter from U+FDD0 to U+FDEF");

  Marks marks;
  marks.mark_ = free[0];
  marks.mark_utf8_ = utf8_of(free[0]);
  marks.spare_ = utf8_of(free[1]);
  marks.spellings_ = spellings;
  for (const std::string& spelling : spellings)
    if (!spelling.empty() && utf8_head(spelling).len < spelling.size())
      marks.lengths_.insert(spelling.size());
  return marks;
}

Json Marks::apply(const Json& context) const {
  if (lengths_.empty()) return context;
  Json out = Json::object();
  for (const auto& [key, value] : context.items())
    append(out, key, key.ends_with("_token") ? value : marked_copy(value));
  return out;
}

Json Marks::marked_copy(const Json& value) const {
  if (value.is_string()) return marked_copy(std::string_view(value.get_ref<const std::string&>()));
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(marked_copy(item));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    for (const auto& [key, item] : value.items())
      append(out, marked_copy(std::string_view(key)), marked_copy(item));
    return out;
  }
  return value;
}

std::string Marks::marked_copy(std::string_view text) const {
  std::array<bool, 256> starts{};
  for (const std::string& spelling : spellings_)
    if (!spelling.empty()) starts[static_cast<unsigned char>(spelling[0])] = true;
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!starts[static_cast<unsigned char>(text[at])]) continue;
    if (!spelled_at(text, at) && !begun_at_end(text, at)) continue;
    const size_t after_first = at + utf8_head(text.substr(at)).len;
    out += text.substr(copied, after_first - copied);
    out += mark_utf8_;
    copied = after_first;
  }
  return out += text.substr(copied);
}

bool Marks::spelled_at(std::string_view text, size_t at) const {
  return std::ranges::any_of(lengths_, [&](size_t len) {
    return len <= text.size() - at && std::binary_search(spellings_.begin(), spellings_.end(),
                                                         text.substr(at, len), std::less<>{});
  });
}

// Space at the end counts for nothing: templates strip it.
bool Marks::begun_at_end(std::string_view text, size_t at) const {
  const std::string_view end = without_end_space(text);
  if (end.size() <= at || end.size() - at >= *lengths_.rbegin()) return false;
  const std::string_view rest = end.substr(at);
  const auto it = std::lower_bound(spellings_.begin(), spellings_.end(), rest, std::less<>{});
  return it != spellings_.end() && it->starts_with(rest);
}

Marks::Cleaned Marks::clean(std::string_view rendered) const {
  Cleaned out;
  std::vector<size_t> places;  // of marks, as offsets in out.text
  const std::string escape = escape_of(mark_);
  while (!rendered.empty()) {
    const size_t at = std::min(rendered.find(mark_utf8_), rendered.find(escape));
    out.text += rendered.substr(0, at);
    if (at == std::string_view::npos) break;
    places.push_back(out.text.size());
    rendered.remove_prefix(at + (rendered[at] == '\\' ? escape.size() : mark_utf8_.size()));
  }
  size_t copied = 0;
  for (const size_t place : places) {
    size_t first = place;  // of the character before the mark
    while (first > copied && (static_cast<unsigned char>(out.text[--first]) & 0xC0) == 0x80) {
    }
    if (first == place || !spelled_at(out.text, first)) continue;
    out.marked += std::string_view(out.text).substr(copied, place - copied);
    out.marked += mark_utf8_;
    copied = place;
  }
  out.marked += std::string_view(out.text).substr(copied);
  return out;
}

}  // namespace tenon::text

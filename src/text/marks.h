// Keeps control tokens that people spell apart from those a template writes. Internal to this room.
//
// Before rendering, a mark (a Unicode noncharacter that occurs nowhere in the context) is put
// behind the first character of each spelling of a special token in the context's strings, and of
// what could become one when the template joins strings (a beginning of a spelling at a string's
// end). After rendering, marks that do not stand inside a complete spelling are dropped, and the
// rest guide the encoder. Text without such spellings is not touched, so templates that compare,
// trim or search it see it as it is.
//
// Out of reach: a template that builds a control token around a string ('<|' ~ role ~ '|>'), and
// special tokens of one character.
#pragma once
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tenon::text {

class Marks {
 public:
  // Errors: invalid (the context uses every noncharacter there is to choose from).
  static Result<Marks> choose(const Json& context, std::span<const std::string> spellings);

  // A copy of `context` with marks in all strings and keys, but for top-level values named *_token:
  // those are the template's to write.
  Json apply(const Json& context) const;

  struct Cleaned {
    std::string text;  // without marks
    std::string marked;  // with the marks that stand inside spellings
  };
  Cleaned clean(std::string_view rendered) const;

  char32_t mark() const { return mark_; }
  // A second unused noncharacter, as UTF-8, for the caller's own purposes.
  const std::string& spare() const { return spare_; }

 private:
  Json marked_copy(const Json& value) const;
  std::string marked_copy(std::string_view text) const;
  bool spelled_at(std::string_view text, size_t at) const;
  bool begun_at_end(std::string_view text, size_t at) const;

  std::span<const std::string> spellings_;  // sorted
  std::set<size_t> lengths_;  // of spellings with more than one character
  char32_t mark_ = 0;
  std::string mark_utf8_, spare_;
};

}  // namespace tenon::text

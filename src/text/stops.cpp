// StopMatcher: Knuth-Morris-Pratt for each stop string, side by side.
//
// A character at a time, each pattern knows how much of itself the text ends with. The first that
// is complete is the earliest end, whatever the deltas were; the longest partial match is what must
// be held back, and no more.
#include <algorithm>

#include "text/text.h"

namespace tenon::text {

namespace {

std::vector<size_t> borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  size_t k = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = border[k];
    if (text[i] == text[k]) ++k;
    border[i + 1] = k;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    std::vector<size_t> border = borders(stop);
    patterns_.push_back({std::move(stop), std::move(border)});
  }
}

StopMatcher::Output StopMatcher::push(std::string_view delta) {
  if (stopped_) return {};
  std::string text = std::exchange(held_, {});
  for (const char c : delta) {
    text += c;
    const Pattern* found = nullptr;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != c) p.matched = p.border[p.matched];
      if (p.text[p.matched] == c) ++p.matched;
      if (p.matched == p.text.size() && (!found || p.text.size() > found->text.size())) found = &p;
    }
    if (found) {
      stopped_ = true;
      text.resize(text.size() - found->text.size());
      return {std::move(text), found->text};
    }
  }
  size_t hold = 0;
  for (const Pattern& p : patterns_) hold = std::max(hold, p.matched);
  held_ = text.substr(text.size() - hold);
  text.resize(text.size() - hold);
  return {std::move(text), std::nullopt};
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

}  // namespace tenon::text

#include "cli/suggest.h"

#include <algorithm>

namespace tenon::cli {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> two_up, up(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) up[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int change = up[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, change});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_up[j - 2] + 1);
    }
    two_up = up;
    up = row;
  }
  return up[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = 1 + static_cast<int>(word.size()) / 3;  // "--prot" may be 3 away, "ls" 1
  for (const std::string& candidate : known) {
    int distance = edit_distance(word, candidate);
    bool prefix = word.size() >= 2 && std::string_view(candidate).substr(0, word.size()) == word;
    if (prefix && word.find_first_not_of('-') != std::string_view::npos) distance = 1;
    if (distance <= best_distance && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  std::string best = nearest(word, known);
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace tenon::cli

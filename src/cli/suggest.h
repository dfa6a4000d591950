// "Did you mean": the nearest known word by edit distance.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

// Insertions, deletions, substitutions and swaps of neighbours, each 1.
int edit_distance(std::string_view a, std::string_view b);
// The closest of `known`, or empty when nothing is close enough to be a slip of the fingers. A
// known word that starts with `word` (two letters or more) counts as close.
std::string nearest(std::string_view word, const std::vector<std::string>& known);
// "; did you mean --port?" or empty.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace tenon::cli

// The identity of a model that lies in a Hugging Face cache: repository and revision, read off the
// path. A scanner by hand: the path is the user's, may be long, and the standard regex recurses on
// its input.
#include <algorithm>
#include <string_view>

#include "profile/profile.h"

namespace tenon::profile {

namespace {

constexpr std::string_view kPrefix = "models--";
constexpr size_t kRevisionMin = 40, kRevisionMax = 64;

// ASCII only, whatever the locale.
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

bool is_revision(std::string_view part) {
  return part.size() >= kRevisionMin && part.size() <= kRevisionMax &&
         std::ranges::all_of(part, [](char c) {
           c = lower(c);
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string_view next_part(std::string_view& rest) {
  const auto slash = rest.find_first_of("/\\");
  const auto part = rest.substr(0, slash);
  rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  return part;
}

}  // namespace

std::optional<std::string> external_artifact_fingerprint(std::string_view path) {
  // A window of three path components: models--<enc>, snapshots, <revision>.
  std::string_view rest = path, repo = next_part(rest), folder = next_part(rest);
  while (!rest.empty()) {
    const std::string_view revision = next_part(rest);
    if (repo.size() > kPrefix.size() &&
        equal_ignoring_case(repo.substr(0, kPrefix.size()), kPrefix) &&
        equal_ignoring_case(folder, "snapshots") && is_revision(revision)) {
      const std::string_view name = repo.substr(kPrefix.size());
      const auto dashes = name.find("--");
      // A repository without an organisation has no identity, even if another snapshot lies deeper.
      if (dashes == std::string_view::npos || dashes == 0 || dashes == name.size() - 2)
        return std::nullopt;
      std::string low(revision);
      std::ranges::transform(low, low.begin(), lower);
      return fmt::format("hf:{}/{}@{}", name.substr(0, dashes), name.substr(dashes + 2), low);
    }
    repo = folder;
    folder = revision;
  }
  return std::nullopt;
}

}  // namespace tenon::profile

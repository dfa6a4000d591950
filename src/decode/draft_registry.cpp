#include <algorithm>
#include <charconv>

#include "decode/drafts.h"

namespace tenon::decode {

namespace {
struct Source {
  const char* name;
  Result<std::unique_ptr<DraftSource>> (*make)(const DraftSpec&, const DraftContext&);
};
constexpr Source kSources[] = {
#define ENTRY(source) {#source, make_##source},
#include "decode/drafts.def"
#undef ENTRY
};

bool is_option_name(std::string_view name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == name.npos;
}
}  // namespace

std::vector<std::string> draft_sources() {
  std::vector<std::string> names;
  for (const Source& source : kSources) names.emplace_back(source.name);
  return names;
}

Result<DraftSpec> parse_draft_spec(std::string_view text) {
  DraftSpec spec;
  const size_t colon = text.find(':');
  spec.source = text.substr(0, colon);
  const std::vector<std::string> names = draft_sources();
  if (std::find(names.begin(), names.end(), spec.source) == names.end())
    return unsupported("--draft {}: this build has {}", text, fmt::join(names, ", "));
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  // A path comes first; what does not begin like an option belongs to it, commas included.
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t equals = part.find('=');
    const bool is_option =
        equals != std::string_view::npos && is_option_name(part.substr(0, equals));
    if (!is_option && spec.options.empty())
      spec.path += (spec.path.empty() ? "" : ",") + std::string(part);
    else if (!is_option)
      return invalid("--draft {}: '{}' is not key=value", text, part);
    else if (!spec.options.emplace(part.substr(0, equals), part.substr(equals + 1)).second)
      return invalid("--draft {}: {} is given twice", text, part.substr(0, equals));
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return spec;
}

Status check_draft_spec(const DraftSpec& spec, bool takes_path,
                        const std::vector<std::string>& options) {
  if (!takes_path && !spec.path.empty())
    return invalid("--draft {}:{}: {} takes no path", spec.source, spec.path, spec.source);
  for (const auto& [key, value] : spec.options)
    if (std::find(options.begin(), options.end(), key) == options.end())
      return invalid(
          "--draft {}: no option '{}'{}", spec.source, key,
          options.empty() ? "" : fmt::format(" (there are {})", fmt::join(options, ", ")));
  return {};
}

Result<int> draft_option(const DraftSpec& spec, const std::string& name, int otherwise, int min,
                         int max) {
  const auto it = spec.options.find(name);
  if (it == spec.options.end()) return otherwise;
  int value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [stop, error] = std::from_chars(it->second.data(), end, value);
  if (error != std::errc() || stop != end || value < min || value > max)
    return invalid("--draft {}: {}={} must be {} to {}", spec.source, name, it->second, min, max);
  return value;
}

Result<std::optional<float>> draft_number(const DraftSpec& spec, const std::string& name, float min,
                                          float max) {
  const auto it = spec.options.find(name);
  if (it == spec.options.end()) return std::optional<float>();
  float value = 0;
  const char* end = it->second.data() + it->second.size();
  const auto [stop, error] = std::from_chars(it->second.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= min && value <= max))
    return invalid("--draft {}: {}={} must be a number from {} to {}", spec.source, name,
                   it->second, min, max);
  return std::optional(value);
}

Result<std::unique_ptr<DraftSource>> make_draft_source(const DraftSpec& spec,
                                                       const DraftContext& context) {
  for (const Source& source : kSources)
    if (spec.source == source.name) return source.make(spec, context);
  return unsupported("--draft {}: this build has {}", spec.source,
                     fmt::join(draft_sources(), ", "));
}

}  // namespace tenon::decode

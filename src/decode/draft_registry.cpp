#include "decode/drafts.h"

namespace tenon::decode {

namespace {
struct Source {
  const char* name;
  Result<std::unique_ptr<DraftSource>> (*make)(std::string_view);
};
constexpr Source kSources[] = {
#define ENTRY(source) {#source, make_##source},
#include "decode/drafts.def"
#undef ENTRY
};
}  // namespace

std::vector<std::string> draft_sources() {
  std::vector<std::string> names;
  for (const Source& source : kSources) names.emplace_back(source.name);
  return names;
}

Result<std::unique_ptr<DraftSource>> make_draft_source(const std::string& spec) {
  const size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon);
  for (const Source& source : kSources)
    if (name == source.name)
      return source.make(colon == std::string::npos ? std::string_view()
                                                    : std::string_view(spec).substr(colon + 1));
  return unsupported("--draft {}: this build has {}", spec, fmt::join(draft_sources(), ", "));
}

}  // namespace tenon::decode

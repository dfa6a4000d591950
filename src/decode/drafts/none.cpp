// Draft source `none`: plain decoding is speculation with nothing proposed.
#include "decode/drafts.h"

namespace tenon::decode {

namespace {
class None final : public DraftSource {
 public:
  const char* name() const override { return "none"; }
  std::vector<int32_t> draft(std::span<const int32_t>, int) override { return {}; }
};
}  // namespace

Result<std::unique_ptr<DraftSource>> make_none(std::string_view) {
  return std::unique_ptr<DraftSource>(new None);
}

}  // namespace tenon::decode

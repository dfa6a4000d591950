// Draft source `none`: plain decoding is speculation with nothing proposed.
#include "decode/drafts.h"

namespace tenon::decode {

namespace {
class None final : public DraftSource {
 public:
  const char* name() const override { return "none"; }
  int default_depth() const override { return 0; }
  int max_depth() const override { return 0; }
  std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) override {
    return std::vector<std::vector<int32_t>>(rows.size());
  }
};
}  // namespace

Result<std::unique_ptr<DraftSource>> make_none(const DraftSpec& spec, const DraftContext&) {
  TENON_OK(check_draft_spec(spec, false, {}));
  return std::unique_ptr<DraftSource>(new None);
}

}  // namespace tenon::decode

// The makers that drafts/<source>.cpp define, one per ENTRY in drafts.def, and what they share.
#pragma once
#include "decode/decode.h"

namespace tenon::decode {

#define ENTRY(source)                                                       \
  Result<std::unique_ptr<DraftSource>> make_##source(const DraftSpec& spec, \
                                                     const DraftContext& context);
#include "decode/drafts.def"
#undef ENTRY

// Errors: invalid, naming what the source does not take.
Status check_draft_spec(const DraftSpec& spec, bool takes_path,
                        const std::vector<std::string>& options);
Result<int> draft_option(const DraftSpec& spec, const std::string& name, int otherwise, int min,
                         int max);

// Without the option: none. Errors: invalid, outside [min, max].
Result<std::optional<float>> draft_number(const DraftSpec& spec, const std::string& name, float min,
                                          float max);

}  // namespace tenon::decode

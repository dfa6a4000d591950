// The makers that drafts/<source>.cpp define, one per ENTRY in drafts.def. `argument`: what follows
// the colon in --draft source:argument.
#pragma once
#include "decode/decode.h"

namespace tenon::decode {

#define ENTRY(source) Result<std::unique_ptr<DraftSource>> make_##source(std::string_view argument);
#include "decode/drafts.def"
#undef ENTRY

}  // namespace tenon::decode

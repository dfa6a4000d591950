// What the sources share whose drafters propose whole blocks (graph::BlockDrafter): contexts that
// are as long as the target's caches after every round, chains over the drafts of a block, drafts
// that are not worth a verification left out.
// Option min_confidence in [0, 1]: a draft that is less sure of itself ends its row's drafts.
#pragma once
#include "decode/drafts.h"

namespace tenon::decode {

// `name` lives as long as the program. Errors: invalid (no path, an option), those of load_block.
Result<std::unique_ptr<DraftSource>> make_block_source(const char* name, graph::BlockLayout layout,
                                                       const DraftSpec& spec,
                                                       const DraftContext& context);

}  // namespace tenon::decode

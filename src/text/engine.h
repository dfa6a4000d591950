// The one Tokenizer there is, over the shim. Internal to this room.
// Owner: holds the shim's handle; token_bytes point into it. Thread: immutable.
#pragma once
#include <unordered_map>

#include "text/shim.h"
#include "text/text.h"

namespace tenon::text {

// Ids that repeat the spelling of an earlier id, which a tokenizer.json cannot say: they decode
// like the earlier one and are never encoded to. `vocab_size` counts them.
struct RepeatedIds {
  std::unordered_map<int32_t, int32_t> first;  // repeated id -> lowest id with its spelling
  int32_t vocab_size = 0;
};

Result<std::shared_ptr<const Tokenizer>> make_engine(std::string_view tokenizer_json,
                                                     RepeatedIds repeated);

}  // namespace tenon::text

// A piece of ordinary prose, for verbs that need a text and were given none. About 2,100 tokens of
// the default model.
#pragma once
#include <string_view>

namespace tenon::cli {
extern const std::string_view kSampleText;
}

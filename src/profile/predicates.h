// Which graph runs which config. Thread: any; pure.
#pragma once
#include <optional>
#include <string>

#include "profile/config.h"
#include "profile/profile.h"

namespace tenon::profile {

// Acceptance as the factory sees it. For universal-dense a config that fails to parse is not
// accepted.
bool graph_accepts(Graph graph, const ConfigView& view);

// For a type that a targeted graph runs, when this config is not one it runs: what is in the way,
// one line. Nothing for other types.
std::optional<std::string> near_miss(const ConfigView& view);

// Companions of another model, without a language model of their own.
bool is_drafter(std::string_view model_type);

}  // namespace tenon::profile

// The universal-dense descriptors: which model types the generic graph runs and what each one's
// config must hold. Data only; the graph itself reads the values. Thread: immutable. Source:
// mlx-lm's ModelArgs dataclass of each type.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "profile/config.h"

namespace tenon::profile {

bool has_descriptor(std::string_view remapped_type);

// Every type with a descriptor, sorted.
const std::vector<std::string>& generic_types();

// Reads the config as its descriptor would; the value is a list of remarks, one line each (a rope
// scaling that is switched off). CHECKs that the remapped model_type has a descriptor. Errors:
// invalid, naming the field.
Result<std::vector<std::string>> parse_descriptor(const ConfigView& view);

}  // namespace tenon::profile

// A JSON object as lines for people: aligned names, nested objects indented, lists one item a
// line when their items are long.
#pragma once
#include <string>

#include "base/json.h"

namespace tenon::cli {
std::string json_table(const Json& object, int indent = 0);
}

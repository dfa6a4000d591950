// Files as read-only memory.
// A Mapping is shared by every view into it and unmapped with the last one; bytes are never copied.
// Thread: immutable after map_file. A file shortened by someone else while mapped raises SIGBUS on
// access: checkpoints must not be edited in place under a running server (replace them by rename).
// Errors name the file: not_found (absent), invalid (not a regular file), corrupt (empty,
// unreadable).
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace tenon::checkpoint {

struct Mapping {
  std::span<const std::byte> bytes;  // never empty
  std::shared_ptr<const void> keep;
};

Result<Mapping> map_file(const std::string& path);

}  // namespace tenon::checkpoint

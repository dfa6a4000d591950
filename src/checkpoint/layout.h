// What every reader checks about a stored tensor before a view of it leaves the room: its size from
// its shape without overflow, its name, and that no two tensors share bytes.
// Pure functions over headers; no tensor byte is read. Thread: any. Units: bytes unless said.
// Errors: corrupt, naming file and tensor.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/weight.h"

namespace tenon::checkpoint {

// A name out of a file as it may appear in a message: one line, printable, at most 120 bytes.
std::string shown(std::string_view name);
std::string shape_text(std::span<const int64_t> shape);  // "[576, 1536]"

std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b);
// Elements of a shape; nothing when a dimension is negative or the product passes int64.
std::optional<uint64_t> element_count(std::span<const int64_t> shape);
// Bytes that `shape` takes in `format`. Errors: overflow, or rows that are not whole blocks.
Result<uint64_t> stored_bytes(std::span<const int64_t> shape, Format format, std::string_view file,
                              std::string_view tensor);

// All names differ and no byte belongs to two tensors. Views must lie in one mapping.
Status check_distinct(std::span<const WeightView> tensors, std::string_view file);

}  // namespace tenon::checkpoint

// The open rows of a cache, by slot. Misuse throws std::logic_error. Thread: the engine's.
#pragma once
#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "ops/ops.h"

namespace tenon::cache {

template <class Row>
class RowMap {
 public:
  void open(int slot, Row&& row) {
    if (!rows_.try_emplace(slot, std::move(row)).second)
      throw std::logic_error(fmt::format("[cache.open] slot {} is open", slot));
  }
  void close(int slot) { rows_.erase(slot); }
  bool has(int slot) const { return rows_.contains(slot); }
  const Row& at(int slot) const {
    const auto row = rows_.find(slot);
    if (row == rows_.end())
      throw std::logic_error(fmt::format("[cache] slot {} is not open", slot));
    return row->second;
  }
  Row& at(int slot) { return const_cast<Row&>(std::as_const(*this).at(slot)); }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

 private:
  std::map<int, Row> rows_;
};

// A layer that brings tokens of its own finds the row at the slice's offset; one that reads what an
// earlier layer of the step appended finds it behind the slice.
inline void check_offset(const ops::RowSlice& slice, int len, bool appends) {
  const int expected = slice.offset + (appends ? 0 : slice.len);
  if (slice.len < 1 || len != expected)
    throw std::logic_error(fmt::format("[cache] slot {} holds {} tokens, the step expects {}",
                                       slice.slot, len, expected));
}

[[noreturn]] inline void refuse_rollback(int len, int now, const std::string& possible) {
  throw std::logic_error(
      fmt::format("[cache.rollback] to {} of {} tokens: possible is {}", len, now, possible));
}

}  // namespace tenon::cache

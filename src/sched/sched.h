// The door of sched: which rows compute how many tokens in the next step. Pure bookkeeping: no MLX,
// no threads, no clock, so a seeded simulator can drive it.
//
// A sequence is a count of computed tokens chasing a count of known ones (prompt + output). Prefill
// is a row far behind, decode a row one behind: plan() treats them alike and gives every running
// row at least one token, so a long prompt cannot stop a stream and a short prompt does not wait
// behind a long one. Units: tokens, bytes. Thread: the engine's.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/result.h"

namespace tenon::sched {

// One ledger over everything that grows: reservations are made before memory is.
class Ledger {
 public:
  explicit Ledger(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  bool reserve(uint64_t bytes);  // false: would pass the limit; nothing changes
  void release(uint64_t bytes);
  uint64_t used() const { return used_; }
  uint64_t limit() const { return bytes_max_; }

 private:
  uint64_t bytes_max_;
  uint64_t used_ = 0;
};

struct SequenceSpec {
  uint64_t id = 0;
  int prompt_len = 0;
  int max_tokens = 0;  // output tokens at most
};

struct Limits {
  int max_batch = 8;  // rows running at once
  int max_queue = 256;  // sequences waiting for a row
  double bytes_per_token = 0;  // predicted cache bytes of one token of one row
  uint64_t bytes_per_row = 0;  // and of a row, however long
};

// One row of a plan: compute `count` tokens from position `computed`; the row draws when that
// reaches its last known token.
struct PlannedRow {
  uint64_t id = 0;
  int slot = 0;
  int computed = 0;
  int count = 0;
  bool opened = false;  // first time in this slot: the caches must be opened
};

struct RowResult {
  uint64_t id = 0;
  int computed = 0;  // tokens in the caches now
  int num_drawn = 0;  // new known tokens
  bool finished = false;  // ended by an end id, a limit or an error: the slot is free
};

class Scheduler {
 public:
  Scheduler(const Limits& limits, Ledger* ledger);

  // Errors: overloaded when the queue is full; too_large when the sequence alone passes the ledger.
  Status admit(const SequenceSpec& spec);
  // At most `budget_tokens` new tokens in all, at most `row_tokens_max` of one row (0: no limit);
  // each running row gets at least one whatever the budget.
  std::vector<PlannedRow> plan(int budget_tokens, int row_tokens_max = 0);
  void commit(const std::vector<RowResult>& results);
  // Takes a sequence out wherever it is. The slot it held, if it had one: its caches must be
  // closed.
  std::optional<int> remove(uint64_t id);

  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  struct Sequence {
    SequenceSpec spec;
    int slot = -1;
    int known = 0;
    int computed = 0;
    bool opened = false;
    uint64_t reserved = 0;
  };
  void seat_waiting();
  void free_row(size_t index);
  uint64_t bytes_of(const SequenceSpec& spec) const;

  Limits limits_;
  Ledger* ledger_;
  std::deque<Sequence> waiting_;  // in order of arrival
  std::vector<Sequence> running_;  // in order of seating
  std::vector<int> free_slots_;  // lowest last
};

}  // namespace tenon::sched

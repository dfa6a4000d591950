#include <algorithm>

#include "base/check.h"
#include "sched/sched.h"

namespace tenon::sched {

Scheduler::Scheduler(const Limits& limits, Ledger* ledger) : limits_(limits), ledger_(ledger) {
  for (int slot = limits.max_batch - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

uint64_t Scheduler::bytes_of(const SequenceSpec& spec) const {
  return limits_.bytes_per_row +
         static_cast<uint64_t>(limits_.bytes_per_token *
                               (static_cast<double>(spec.prompt_len) + spec.max_tokens));
}

Status Scheduler::admit(const SequenceSpec& spec) {
  CHECK(spec.prompt_len > 0 && spec.max_tokens > 0, "sequence {}", spec.id);
  if (const uint64_t need = bytes_of(spec); need > ledger_->limit())
    return too_large("the request needs {} bytes of cache, the budget is {}", need,
                     ledger_->limit());
  const int room = limits_.max_queue + static_cast<int>(free_slots_.size());
  if (num_waiting() >= room)
    return overloaded("{} requests are waiting already; try again later", num_waiting());
  waiting_.push_back({spec, -1, spec.prompt_len, 0, false, 0});
  return {};
}

// First come, first seated: a big request at the head waits for memory rather than being overtaken
// for ever.
void Scheduler::seat_waiting() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence& next = waiting_.front();
    const uint64_t need = bytes_of(next.spec);
    if (!ledger_->reserve(need)) return;
    next.reserved = need;
    next.slot = free_slots_.back();
    free_slots_.pop_back();
    running_.push_back(next);
    waiting_.pop_front();
  }
}

std::vector<PlannedRow> Scheduler::plan(int budget_tokens, int row_tokens_max) {
  seat_waiting();
  std::vector<PlannedRow> rows;
  int left = budget_tokens;
  for (const Sequence& s : running_) {
    rows.push_back({s.spec.id, s.slot, s.computed, 1, !s.opened});
    --left;
  }
  // What is left goes to the rows that are behind, in equal shares: a short prompt finishes soon,
  // and a long one takes what the short ones do not need.
  std::vector<size_t> behind;
  const auto wants = [&](size_t i) {
    const int missing = running_[i].known - running_[i].computed;
    return (row_tokens_max > 0 ? std::min(missing, row_tokens_max) : missing) - rows[i].count;
  };
  for (size_t i = 0; i < rows.size(); ++i)
    if (wants(i) > 0) behind.push_back(i);
  std::stable_sort(behind.begin(), behind.end(),
                   [&](size_t a, size_t b) { return wants(a) < wants(b); });
  for (size_t k = 0; k < behind.size() && left > 0; ++k) {
    const int share = std::max(1, left / static_cast<int>(behind.size() - k));
    const int more = std::min({wants(behind[k]), share, left});
    rows[behind[k]].count += more;
    left -= more;
  }
  for (Sequence& s : running_) s.opened = true;
  return rows;
}

void Scheduler::commit(const std::vector<RowResult>& results) {
  for (const RowResult& result : results) {
    const auto it = std::find_if(running_.begin(), running_.end(),
                                 [&](const Sequence& s) { return s.spec.id == result.id; });
    CHECK(it != running_.end(), "sequence {} is not running", result.id);
    it->computed = result.computed;
    it->known += result.num_drawn;
    CHECK(result.finished || it->computed < it->known, "sequence {} has nothing to compute",
          result.id);
    if (result.finished) free_row(it - running_.begin());
  }
}

void Scheduler::free_row(size_t index) {
  ledger_->release(running_[index].reserved);
  free_slots_.push_back(running_[index].slot);
  std::sort(free_slots_.rbegin(), free_slots_.rend());
  running_.erase(running_.begin() + index);
}

std::optional<int> Scheduler::remove(uint64_t id) {
  const auto is_it = [&](const Sequence& s) { return s.spec.id == id; };
  if (const auto w = std::find_if(waiting_.begin(), waiting_.end(), is_it); w != waiting_.end()) {
    waiting_.erase(w);
    return std::nullopt;
  }
  const auto r = std::find_if(running_.begin(), running_.end(), is_it);
  if (r == running_.end()) return std::nullopt;
  const std::optional<int> slot = r->opened ? std::optional<int>(r->slot) : std::nullopt;
  free_row(r - running_.begin());
  return slot;
}

}  // namespace tenon::sched

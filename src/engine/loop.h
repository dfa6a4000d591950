// The one loop: plan -> round -> commit. Owned and run by the engine thread alone.
//
// Everything a running request has on this thread lives in a Sequence; what readers see goes
// through its Generation's channel. A failed round drops the caches of every row in it, sends each
// an error event, and the loop goes on.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "decode/decode.h"
#include "engine/loaded.h"
#include "engine/speculation.h"
#include "sched/sched.h"

namespace tenon::engine {

using Clock = std::chrono::steady_clock;

struct Submission {
  GenerationRequest request;
  std::shared_ptr<Generation> generation;
  Clock::time_point arrived;
};

// Counters that other threads read; one lock a step.
class StatsBoard {
 public:
  Stats read() const {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void update(const std::function<void(Stats&)>& change) {
    std::lock_guard lock(mutex_);
    change(stats_);
  }

 private:
  mutable std::mutex mutex_;
  Stats stats_;
};

class Loop {
 public:
  // `on_finished` runs once per admitted request, after its Finished event.
  Loop(LoadedModel model, const EngineOptions& options, StatsBoard* board,
       std::function<void()> on_finished);
  ~Loop();

  void admit(Submission submission);
  // One turn: drops cancelled and late requests, then one step if anything is due.
  void turn();
  bool idle() const { return sequences_.empty(); }
  void end_all(const Error& error);  // every request ends with this error

 private:
  struct Sequence;

  int budget_tokens(bool any_decoding) const;
  bool ends(const Sequence& s, int32_t id) const;  // this id is an end for this request
  void step();
  void open_row(Sequence& s, int slot);
  void close_row(Sequence& s);
  void commit_row(Sequence& s, decode::RowOutcome& outcome, sched::RowResult& result);
  void emit_outcome(Sequence& s, decode::RowOutcome& outcome);
  void fail_rows(const std::vector<sched::PlannedRow>& plan, const std::string& why);
  void finish(Sequence& s, FinishReason reason, Error error);
  void remove(uint64_t id, FinishReason reason, Error error);  // wherever it is
  void drop_leavers();
  void measure(int num_tokens, int num_prefill, double seconds);
  void publish();

  LoadedModel model_;
  Speculation speculation_;
  const EngineOptions options_;
  StatsBoard* board_;
  std::function<void()> on_finished_;
  sched::Ledger ledger_;
  sched::Scheduler scheduler_;
  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  uint64_t next_id_ = 1;
  Stats totals_;
  double tokens_per_s_ = 0;  // of recent steps that computed several tokens at once
};

}  // namespace tenon::engine

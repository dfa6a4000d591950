// The loop's part in speculative decoding: which rows draft, how deep, and what came of it. Tokens
// do not depend on any of it. Thread: the engine's.
#pragma once
#include <optional>

#include "decode/decode.h"
#include "engine/engine.h"

namespace tenon::engine {

// A running request's part. Opened with its row, closed with it.
struct DraftRecord {
  bool open = false;
  int pinned = -1;  // drafts in every round; -1: as they pay
  std::optional<decode::Acceptance> acceptance;
  int idle = 0;        // rounds without a draft
  int idle_max = 0;    // then one is tried
  DraftStats stats;
};

class Speculation {
 public:
  // `cost` is needed where depths are not pinned. `source` null: nothing is ever drafted.
  Speculation(std::unique_ptr<decode::DraftSource> source, std::optional<decode::StepCost> cost,
              int pinned_depth);

  decode::DraftSource* source() { return source_.get(); }
  double bytes_per_token() const { return source_ ? source_->bytes_per_token() : 0; }
  uint64_t row_bytes() const { return source_ ? source_->row_bytes() : 0; }
  uint64_t cache_bytes() const { return source_ ? source_->cache_bytes() : 0; }
  uint64_t weight_bytes() const { return source_ ? source_->weight_bytes() : 0; }

  // `depth`: what the request asks for; 0: no drafts, -1: the server's way.
  void open(DraftRecord& record, int slot, int depth);
  void close(DraftRecord& record, int slot);

  // A row of a step, before the round.
  struct Row {
    decode::RowWork* work;
    DraftRecord* record;
    int room;  // tokens it may still draw after this round's own
  };
  void plan(std::span<const Row> rows);
  void learn(std::span<const Row> rows, const decode::RoundOutcome& round);

 private:
  void plan_measured(std::span<const Row> rows, const std::vector<size_t>& free_rows);
  std::unique_ptr<decode::DraftSource> source_;
  std::optional<decode::StepCost> cost_;
  int pinned_depth_;
  double prior_;  // acceptance that a new row starts with: what rows before it had
  double draft_s_ = 0;  // seconds of one draft of all rows
};

}  // namespace tenon::engine

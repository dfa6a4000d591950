#include "engine/speculation.h"

#include <algorithm>

#include "base/log.h"

namespace tenon::engine {

namespace {

constexpr double kPriorAcceptance = 0.5;
constexpr double kPriorStep = 0.1;  // of one row's rate into the next row's prior
// Where drafts do not pay, one is tried now and then: rarely, as each costs more than it brings.
constexpr int kIdleFirst = 16;
constexpr int kIdleMax = 256;

}  // namespace

void DraftStats::add(int num_drafted, int num_accepted) {
  DraftStats one;
  one.rounds = 1;
  one.drafted = static_cast<uint64_t>(num_drafted);
  one.accepted = static_cast<uint64_t>(num_accepted);
  one.drafted_at.assign(static_cast<size_t>(num_drafted), 1);
  one.accepted_at.assign(static_cast<size_t>(num_accepted), 1);
  add(one);
}

void DraftStats::add(const DraftStats& other) {
  const auto sum = [](std::vector<uint64_t>& to, const std::vector<uint64_t>& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  };
  rounds += other.rounds;
  drafted += other.drafted;
  accepted += other.accepted;
  sum(drafted_at, other.drafted_at);
  sum(accepted_at, other.accepted_at);
}

Speculation::Speculation(std::unique_ptr<decode::DraftSource> source,
                         std::optional<decode::StepCost> cost, int pinned_depth)
    : source_(std::move(source)),
      cost_(std::move(cost)),
      pinned_depth_(pinned_depth),
      prior_(kPriorAcceptance) {}

void Speculation::open(DraftRecord& record, int slot, int depth) {
  record.pinned = depth >= 0 ? depth : pinned_depth_;
  if (!source_ || record.pinned == 0) return;
  source_->open(slot);
  record.open = true;
  record.acceptance.emplace(prior_);
  record.idle_max = kIdleFirst;
}

void Speculation::close(DraftRecord& record, int slot) {
  if (!record.open) return;
  record.open = false;
  source_->close(slot);
  if (record.stats.drafted > 0) prior_ += kPriorStep * (record.acceptance->rate() - prior_);
}

void Speculation::plan(std::span<const Row> rows) {
  std::vector<size_t> free_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    row.work->drafts_open = row.record->open;
    const bool one_behind =
        row.work->count == 1 && row.work->computed + 1 == static_cast<int>(row.work->known.size());
    if (!row.record->open || !one_behind || row.room < 1) continue;
    if (row.record->pinned > 0)
      row.work->num_drafts = std::min(row.record->pinned, row.room);
    else
      free_rows.push_back(i);
  }
  if (!free_rows.empty()) plan_measured(rows, free_rows);
}

void Speculation::plan_measured(std::span<const Row> rows, const std::vector<size_t>& free_rows) {
  int num_tokens = 0, num_draws = 0;
  for (const Row& row : rows) {
    num_tokens += row.work->count + row.work->num_drafts;
    num_draws += row.work->computed + row.work->count == static_cast<int>(row.work->known.size());
  }
  std::vector<decode::DepthRow> asking;
  for (size_t i : free_rows)
    asking.push_back(
        {rows[i].record->acceptance->rate(), std::min(source_->max_depth(), rows[i].room)});
  const std::vector<int> depths =
      decode::choose_depths(*cost_, num_tokens, num_draws, draft_s_, asking);
  for (size_t k = 0; k < free_rows.size(); ++k) {
    const Row& row = rows[free_rows[k]];
    row.work->num_drafts = depths[k];
    if (depths[k] > 0) continue;
    row.work->guesses = source_->is_free();
    if (!source_->is_free() && ++row.record->idle >= row.record->idle_max) {
      row.work->num_drafts = 1;
      row.record->idle = 0;
      row.record->idle_max = std::min(kIdleMax, 2 * row.record->idle_max);
    }
  }
}

void Speculation::learn(std::span<const Row> rows, const decode::RoundOutcome& round) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const decode::RowOutcome& out = round.rows[i];
    DraftRecord& record = *rows[i].record;
    if (!record.open) continue;
    if (out.guessed) record.acceptance->observe(1, *out.guessed ? 1 : 0);
    if (out.num_drafted == 0) continue;
    record.acceptance->observe(out.num_drafted, out.num_accepted);
    if (out.num_accepted > 0) record.idle_max = kIdleFirst;
    record.stats.add(out.num_drafted, out.num_accepted);
  }
  if (round.draft_len > 0 && !source_->is_free()) {
    const double each = round.draft_s / round.draft_len;
    draft_s_ = draft_s_ > 0 ? 0.8 * draft_s_ + 0.2 * each : each;
  }
  if (round.draft_error.empty()) return;
  log_warn("{}; {} request(s) go on without drafts", round.draft_error, rows.size());
  for (const Row& row : rows) close(*row.record, row.work->slot);
}

}  // namespace tenon::engine

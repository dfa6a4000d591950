#include "engine/loop.h"

#include <algorithm>

#include "base/check.h"
#include "base/handover.h"
#include "base/log.h"

namespace tenon::engine {

namespace {

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Prefill pieces: small until the machine's speed is known, never so large that a cancel waits for
// long.
constexpr int kBudgetMin = 4;
constexpr int kBudgetFirst = 16;
constexpr int kBudgetMax = 512;
// With nothing streaming, a longer step costs only the time to notice a cancel.
constexpr int kQuietFactor = 4;
constexpr int kReserveTokens = 4096;

}  // namespace

struct Loop::Sequence {
  uint64_t id;
  Submission from;
  std::vector<int32_t> known;  // prompt and output
  int prompt_len;
  int computed = 0;
  int slot = -1;  // open in the caches; -1: none
  decode::StepSampler sampler;
  DraftRecord drafts;
  Clock::time_point seated{}, first_token{};

  Sequence(uint64_t id_, Submission s, int num_words)
      : id(id_),
        from(std::move(s)),
        known(from.request.prompt_ids),
        prompt_len(static_cast<int>(known.size())),
        sampler(from.request.sampling, from.request.top_logprobs, num_words) {
    // Enough for most replies; a window of a million tokens is not paid for in advance.
    known.reserve(known.size() + std::min(from.request.max_tokens, kReserveTokens));
  }
  // Tokens it may draw besides the next one.
  int room() const { return from.request.max_tokens - num_drawn() - 1; }
  int num_drawn() const { return static_cast<int>(known.size()) - prompt_len; }
  void emit(Event event) {
    // The channel holds the whole reply by construction; a full one is a sizing error of ours.
    const bool taken = from.generation->events.push(std::move(event));
    CHECK(taken, "event queue of sequence {} is full", id);
  }
};

Loop::Loop(LoadedModel model, const EngineOptions& options, StatsBoard* board,
           std::function<void()> on_finished)
    : model_(std::move(model)),
      speculation_(std::move(model_.drafts), std::move(model_.step_cost), options.draft_depth),
      options_(options),
      board_(board),
      on_finished_(std::move(on_finished)),
      ledger_(model_.cache_bytes_max),
      scheduler_({options.max_batch, options.max_queue,
                  model_.graph->caches().bytes_per_token() + speculation_.bytes_per_token(),
                  model_.graph->caches().row_bytes() + speculation_.row_bytes()},
                 &ledger_) {
  publish();
}

Loop::~Loop() = default;

void Loop::admit(Submission submission) {
  ++totals_.requests;
  const uint64_t id = next_id_++;
  auto sequence = std::make_unique<Sequence>(
      id, std::move(submission), model_.card->tokenizer ? model_.card->tokenizer->vocab_size() : 0);
  Sequence& s = *sequence;
  sequences_.emplace(id, std::move(sequence));
  if (Status status = scheduler_.admit({id, s.prompt_len, s.from.request.max_tokens});
      !status.ok()) {
    finish(s, FinishReason::error, std::move(status).error());
    sequences_.erase(id);
  }
}

void Loop::turn() {
  drop_leavers();
  if (!scheduler_.idle()) step();
  publish();
}

// Cancelled and overdue requests give their row back before the next forward.
void Loop::drop_leavers() {
  const auto now = Clock::now();
  std::vector<std::pair<uint64_t, bool>> leavers;  // id, cancelled
  for (const auto& [id, s] : sequences_) {
    const int64_t limit_ms = s->from.request.deadline_ms;
    if (s->from.generation->is_cancelled())
      leavers.emplace_back(id, true);
    else if (limit_ms > 0 && ms_between(s->from.arrived, now) > static_cast<double>(limit_ms))
      leavers.emplace_back(id, false);
  }
  for (const auto& [id, was_cancelled] : leavers) {
    if (was_cancelled)
      remove(id, FinishReason::cancelled, cancelled("the client left"));
    else
      remove(id, FinishReason::error, deadline("the request ran past its deadline"));
  }
}

int Loop::budget_tokens(bool any_decoding) const {
  if (options_.prefill_chunk > 0) return options_.prefill_chunk * options_.max_batch;
  // Stock kernels off the CPU choose arithmetic by shape: pieces must then not follow the clock.
  if (model_.card->kernels == "mlx" && model_.card->device != "cpu") return kBudgetMax;
  if (tokens_per_s_ <= 0) return kBudgetFirst;
  const double due = tokens_per_s_ * options_.gap_ms / 1000 * (any_decoding ? 1 : kQuietFactor);
  return std::clamp(static_cast<int>(due), kBudgetMin, kBudgetMax);
}

void Loop::step() {
  const bool any_decoding = std::any_of(
      sequences_.begin(), sequences_.end(),
      [](const auto& entry) { return entry.second->slot >= 0 && entry.second->num_drawn() > 0; });
  const auto plan = scheduler_.plan(budget_tokens(any_decoding), options_.prefill_chunk);
  if (plan.empty()) return;
  std::vector<decode::RowWork> work;
  int num_tokens = 0, num_prefill = 0;
  const auto started = Clock::now();
  decode::RoundOutcome round;
  std::vector<Speculation::Row> rows;
  try {
    for (const sched::PlannedRow& row : plan) {
      Sequence& s = *sequences_.at(row.id);
      if (row.opened) open_row(s, row.slot);
      num_tokens += row.count;
      if (row.count > 1 || s.num_drawn() == 0) num_prefill += row.count;
      work.push_back({.slot = row.slot,
                      .known = s.known,
                      .computed = row.computed,
                      .count = row.count,
                      .step = s.num_drawn(),
                      .sampler = &s.sampler,
                      .want_logits = s.from.request.want_logits});
    }
    for (size_t i = 0; i < plan.size(); ++i) {
      Sequence& s = *sequences_.at(plan[i].id);
      rows.push_back({&work[i], &s.drafts, s.room()});
    }
    speculation_.plan(rows);
    round = decode::run_round(*model_.graph, speculation_.source(), work);
  } catch (const std::exception& e) {
    fail_rows(plan, e.what());
    return;
  }
  speculation_.learn(rows, round);
  std::vector<sched::RowResult> results;
  std::vector<uint64_t> done;
  for (size_t i = 0; i < plan.size(); ++i) {
    Sequence& s = *sequences_.at(plan[i].id);
    sched::RowResult result{plan[i].id, 0, 0, false};
    commit_row(s, round.rows[i], result);
    if (result.finished) done.push_back(result.id);
    results.push_back(result);
  }
  scheduler_.commit(results);
  for (uint64_t id : done) sequences_.erase(id);
  ++totals_.steps;
  measure(num_tokens, num_prefill, ms_between(started, Clock::now()) / 1000);
}

void Loop::open_row(Sequence& s, int slot) {
  model_.graph->caches().open(slot);
  s.slot = slot;
  s.seated = Clock::now();
  speculation_.open(s.drafts, slot, s.from.request.draft_depth);
}

void Loop::close_row(Sequence& s) {
  if (s.slot < 0) return;
  speculation_.close(s.drafts, s.slot);
  model_.graph->caches().close(s.slot);
  s.slot = -1;
}

bool Loop::ends(const Sequence& s, int32_t id) const {
  const std::vector<int32_t>& ids = model_.card->end_ids;
  return !s.from.request.ignore_end && std::binary_search(ids.begin(), ids.end(), id);
}

void Loop::commit_row(Sequence& s, decode::RowOutcome& outcome, sched::RowResult& result) {
  totals_.prompt_tokens += std::max(0, std::min(outcome.computed, s.prompt_len) - s.computed);
  s.computed = outcome.computed;
  result.computed = outcome.computed;
  const auto close = [&](FinishReason reason, Error error) {
    close_row(s);
    result.finished = true;
    finish(s, reason, std::move(error));
  };
  FinishReason reason = FinishReason::length;
  bool finished = false;
  for (size_t i = 0; i < outcome.drawn.size() && !finished; ++i) {
    const int32_t id = outcome.drawn[i].id;
    s.known.push_back(id);
    ++result.num_drawn;
    ++totals_.completion_tokens;
    const bool end = ends(s, id);
    if (end) reason = FinishReason::stop;
    finished = end || s.num_drawn() >= s.from.request.max_tokens;
    if (finished) outcome.drawn.resize(i + 1);
  }
  emit_outcome(s, outcome);
  // What went wrong behind an end is no part of the reply: plain decoding would not have met it.
  if (finished)
    close(reason, {});
  else if (outcome.error)
    close(FinishReason::error, std::move(*outcome.error));
}

void Loop::emit_outcome(Sequence& s, decode::RowOutcome& outcome) {
  const GenerationRequest& request = s.from.request;
  const int first_position = outcome.computed - static_cast<int>(outcome.logits.size());
  for (size_t i = 0; i < outcome.logits.size(); ++i)
    s.emit(Logits{first_position + static_cast<int>(i), std::move(outcome.logits[i])});
  if (request.want_progress && s.first_token == Clock::time_point{})
    s.emit(Progress{std::min(outcome.computed, s.prompt_len), s.prompt_len});
  if (!outcome.drawn.empty() && s.first_token == Clock::time_point{}) s.first_token = Clock::now();
  for (decode::Drawn& drawn : outcome.drawn)
    s.emit(Token{drawn.id, ends(s, drawn.id), drawn.logprob, std::move(drawn.top)});
}

void Loop::fail_rows(const std::vector<sched::PlannedRow>& plan, const std::string& why) {
  // What the step had dispatched before it failed may still be reading the rows' pages.
  mlx::core::synchronize();
  Handover::returned();
  log_warn("a step failed, {} request(s) end: {}", plan.size(), why);
  for (const sched::PlannedRow& row : plan)
    remove(row.id, FinishReason::error, internal("the model failed on this request: {}", why));
}

void Loop::remove(uint64_t id, FinishReason reason, Error error) {
  scheduler_.remove(id);
  Sequence& s = *sequences_.at(id);
  close_row(s);
  finish(s, reason, std::move(error));
  sequences_.erase(id);
}

void Loop::finish(Sequence& s, FinishReason reason, Error error) {
  const auto now = Clock::now();
  const auto never = Clock::time_point{};
  Finished end{reason, std::move(error), {s.prompt_len, s.num_drawn(), 0}, {}, s.drafts.stats};
  totals_.drafts.add(s.drafts.stats);
  end.timing.queue_ms = ms_between(s.from.arrived, s.seated == never ? now : s.seated);
  if (s.seated != never)
    end.timing.prefill_ms = ms_between(s.seated, s.first_token == never ? now : s.first_token);
  if (s.first_token != never) end.timing.decode_ms = ms_between(s.first_token, now);
  ++(reason == FinishReason::error       ? totals_.failed
     : reason == FinishReason::cancelled ? totals_.cancelled
                                         : totals_.finished);
  publish();  // who has read the end of a reply finds it counted
  s.emit(std::move(end));
  s.from.generation->events.close();
  on_finished_();
}

void Loop::end_all(const Error& error) {
  while (!sequences_.empty()) remove(sequences_.begin()->first, FinishReason::error, error);
  publish();
}

// Speed of this machine on this model, for budgets and /stats.
void Loop::measure(int num_tokens, int num_prefill, double seconds) {
  if (seconds <= 0) return;
  const auto blend = [](double old, double fresh) {
    return old <= 0 ? fresh : 0.7 * old + 0.3 * fresh;
  };
  if (num_tokens > 1) tokens_per_s_ = blend(tokens_per_s_, num_tokens / seconds);
  if (num_prefill > 0) totals_.prefill_tok_s = blend(totals_.prefill_tok_s, num_prefill / seconds);
  if (num_tokens > num_prefill)
    totals_.decode_tok_s = blend(totals_.decode_tok_s, (num_tokens - num_prefill) / seconds);
}

void Loop::publish() {
  totals_.running = scheduler_.num_running();
  totals_.waiting = scheduler_.num_waiting();
  totals_.kv_bytes = model_.graph->caches().bytes() + speculation_.cache_bytes();
  totals_.kv_copies = model_.graph->caches().copies();
  totals_.weight_bytes = model_.graph->shape().weight_bytes + speculation_.weight_bytes();
  board_->update([&](Stats& stats) {
    const bool ready = stats.ready;
    const uint64_t refused = stats.refused;
    stats = totals_;
    stats.ready = ready;
    stats.refused = refused;
  });
}

}  // namespace tenon::engine

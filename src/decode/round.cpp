// One round: steps 6 to 9 of a token's life.
#include <algorithm>
#include <chrono>

#include "base/handover.h"
#include "decode/decode.h"

namespace tenon::decode {

namespace {

namespace mx = mlx::core;

// A row while its round runs.
struct Running {
  RowWork* work;
  std::vector<int32_t> drafts;
  std::optional<int32_t> guess;
  ops::RowSlice slice;
  int first_logits = 0;  // index of the row's first logits row in the selected ones
  int num_logits = 0;
  bool draws = false;  // the row reaches its last known token in this round
};

std::vector<Running> begin(std::span<RowWork> rows) {
  std::vector<Running> running;
  for (RowWork& work : rows) {
    Running row{&work, {}, {}, {}, 0, 0, false};
    row.draws = work.computed + work.count == static_cast<int>(work.known.size());
    running.push_back(std::move(row));
  }
  return running;
}

// Asks the source for all rows at once. A source that fails costs its drafts and nothing else.
void propose(DraftSource* source, std::vector<Running>& running, RoundOutcome& round) {
  std::vector<DraftRow> asking;
  std::vector<Running*> who;
  for (Running& row : running) {
    const RowWork& work = *row.work;
    const int wanted = work.num_drafts > 0 ? work.num_drafts : work.guesses ? 1 : 0;
    if (!source || !work.drafts_open || !row.draws || work.count != 1 || wanted == 0) continue;
    asking.push_back(
        {work.slot, work.known, wanted, static_cast<uint32_t>(work.step), work.sampler});
    who.push_back(&row);
  }
  if (asking.empty()) return;
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::vector<int32_t>> drafts;
  try {
    drafts = source->draft(asking);
    if (drafts.size() != asking.size())
      throw std::logic_error(
          fmt::format("[draft] {} rows asked, {} answered", asking.size(), drafts.size()));
  } catch (const std::exception& e) {
    mx::synchronize();
    round.draft_error = fmt::format("draft source {}: {}", source->name(), e.what());
    return;
  }
  round.draft_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  for (size_t i = 0; i < who.size(); ++i) {
    if (static_cast<int>(drafts[i].size()) > asking[i].num_drafts)
      drafts[i].resize(asking[i].num_drafts);
    round.draft_len = std::max(round.draft_len, static_cast<int>(drafts[i].size()));
    if (who[i]->work->num_drafts > 0)
      who[i]->drafts = std::move(drafts[i]);
    else if (!drafts[i].empty())
      who[i]->guess = drafts[i].front();
  }
}

// Lays rows side by side on the flat token axis; each row's drafts come behind its known tokens.
void lay_out(std::vector<Running>& running, std::vector<int32_t>& ids,
             std::vector<int32_t>& selected) {
  for (Running& row : running) {
    const RowWork& work = *row.work;
    const int start = static_cast<int>(ids.size());
    const auto fresh = work.known.subspan(work.computed, work.count);
    ids.insert(ids.end(), fresh.begin(), fresh.end());
    ids.insert(ids.end(), row.drafts.begin(), row.drafts.end());
    const int len = static_cast<int>(ids.size()) - start;
    row.slice = {work.slot, start, len, work.computed};
    // Logits are wanted of the last known token and of each draft, or of everything.
    const int wanted = work.want_logits ? len
                       : row.draws      ? 1 + static_cast<int>(row.drafts.size())
                                        : 0;
    row.first_logits = static_cast<int>(selected.size());
    row.num_logits = wanted;
    for (int i = len - wanted; i < len; ++i) selected.push_back(start + i);
  }
}

// The walk: tokens are drawn one after another; a draft only decides whether the next logits row is
// of use.
void walk(const Running& row, const float* logits, int vocab, RowOutcome& out) {
  RowWork& work = *row.work;
  const int num_drafts = static_cast<int>(row.drafts.size());
  const int first = row.first_logits + row.num_logits - 1 - num_drafts;
  std::span<const int32_t> history = work.known;
  std::vector<int32_t> longer;  // known and what this walk drew; made only when a draft was right
  for (int i = 0; i <= num_drafts; ++i) {
    const std::span<const float> row_logits(logits + static_cast<size_t>(first + i) * vocab,
                                            static_cast<size_t>(vocab));
    auto drawn = work.sampler->draw(row_logits, history, static_cast<uint32_t>(work.step + i));
    if (!drawn.ok()) {
      out.error = std::move(drawn).error();
      return;
    }
    const int32_t id = drawn->id;
    out.drawn.push_back(std::move(drawn).value());
    if (i == num_drafts || id != row.drafts[i]) break;
    ++out.num_accepted;
    if (longer.empty()) longer.assign(work.known.begin(), work.known.end());
    longer.push_back(id);
    history = longer;
  }
  out.num_drafted = num_drafts;
  if (row.guess) out.guessed = out.drawn.front().id == *row.guess;
}

RowOutcome finish_row(graph::Model& model, const Running& row, const float* logits, int vocab) {
  RowOutcome out;
  if (row.draws) walk(row, logits, vocab, out);
  out.computed = row.work->computed + row.work->count + out.num_accepted;
  if (!row.drafts.empty()) model.caches().rollback(row.slice.slot, out.computed);
  if (row.work->want_logits)
    for (int i = 0; i < row.work->count + out.num_accepted; ++i) {
      const float* at = logits + static_cast<size_t>(row.first_logits + i) * vocab;
      out.logits.emplace_back(at, at + vocab);
    }
  return out;
}

void check_taps(const graph::Taps& taps) {
  if (taps.found.size() == taps.layers.size()) return;
  throw std::logic_error(fmt::format("[taps] of layers {} only {} were seen: layer {} is missing",
                                     fmt::join(taps.layers, ", "), taps.found.size(),
                                     taps.layers[taps.found.size()]));
}

// Tells the source what stays. As with drafts, its failure is not the rows'.
void report(DraftSource* source, const std::vector<Running>& running, const graph::Taps& taps,
            RoundOutcome& round) {
  std::vector<KeptRow> kept;
  for (size_t i = 0; i < running.size(); ++i) {
    const Running& row = running[i];
    const RowOutcome& out = round.rows[i];
    if (!row.work->drafts_open || out.error) continue;
    kept.push_back({row.slice.slot, row.work->known,
                    std::span(row.drafts).first(static_cast<size_t>(out.num_accepted)),
                    row.work->computed, out.computed, row.slice.start});
  }
  if (kept.empty() || !round.draft_error.empty()) return;
  try {
    source->keep(kept, taps);
  } catch (const std::exception& e) {
    mx::synchronize();
    round.draft_error = fmt::format("draft source {}: {}", source->name(), e.what());
  }
}

}  // namespace

RoundOutcome run_round(graph::Model& model, DraftSource* source, std::span<RowWork> rows) {
  RoundOutcome round;
  std::vector<Running> running = begin(rows);
  propose(source, running, round);
  std::vector<int32_t> ids, selected;
  lay_out(running, ids, selected);
  std::vector<ops::RowSlice> slices;
  for (const Running& row : running) slices.push_back(row.slice);

  // What may have to go back says so before it goes forward.
  for (const Running& row : running)
    if (!row.drafts.empty()) model.caches().mark(row.slice.slot);

  graph::Taps taps;
  if (source) taps.layers = source->taps();
  const mx::array flat(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
  const mx::array hidden = model.hidden(flat, slices, &taps);
  check_taps(taps);
  std::vector<mx::array> results = model.caches().state();
  results.insert(results.end(), taps.found.begin(), taps.found.end());
  const int vocab = model.shape().vocab_size;
  std::optional<mx::array> logits;
  if (!selected.empty()) {
    const mx::array index(selected.begin(), {static_cast<int>(selected.size())}, mx::int32);
    const bool all = selected.size() == ids.size();
    logits = mx::contiguous(
        mx::astype(model.logits(all ? hidden : mx::take(hidden, index, 0)), mx::float32));
    results.push_back(*logits);
  } else {
    results.push_back(hidden);
  }
  mx::eval(results);
  Handover::returned();

  for (const Running& row : running)
    round.rows.push_back(finish_row(model, row, logits ? logits->data<float>() : nullptr, vocab));
  if (source) report(source, running, taps, round);
  return round;
}

}  // namespace tenon::decode

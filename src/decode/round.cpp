// One round: steps 6 to 9 of a token's life.
#include <algorithm>

#include "base/handover.h"
#include "decode/decode.h"

namespace tenon::decode {

namespace {

namespace mx = mlx::core;

// A row while its round runs.
struct Running {
  RowWork* work;
  std::vector<int32_t> drafts;
  ops::RowSlice slice;
  int first_logits = 0;  // index of the row's first logits row in the selected ones
  int num_logits = 0;
  bool draws = false;  // the row reaches its last known token in this round
};

// Lays rows side by side on the flat token axis; appends each row's drafts after its known tokens.
std::vector<Running> lay_out(std::span<RowWork> rows, std::vector<int32_t>& ids,
                             std::vector<int32_t>& selected) {
  std::vector<Running> running;
  for (RowWork& work : rows) {
    Running row{&work, {}, {}, 0, 0, false};
    row.draws = work.computed + work.count == static_cast<int>(work.known.size());
    if (row.draws && work.source && work.num_drafts > 0)
      row.drafts = work.source->draft(work.known, work.num_drafts);
    if (static_cast<int>(row.drafts.size()) > work.num_drafts) row.drafts.resize(work.num_drafts);
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
    running.push_back(std::move(row));
  }
  return running;
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
}

RowOutcome finish_row(graph::Model& model, const Running& row, const float* logits, int vocab) {
  RowOutcome out;
  if (row.draws) walk(row, logits, vocab, out);
  out.computed = row.work->computed + row.work->count + out.num_accepted;
  if (out.num_accepted < static_cast<int>(row.drafts.size()))
    model.caches().rollback(row.slice.slot, out.computed);
  if (row.work->want_logits)
    for (int i = 0; i < row.work->count + out.num_accepted; ++i) {
      const float* at = logits + static_cast<size_t>(row.first_logits + i) * vocab;
      out.logits.emplace_back(at, at + vocab);
    }
  return out;
}

}  // namespace

std::vector<RowOutcome> run_round(graph::Model& model, std::span<RowWork> rows) {
  std::vector<int32_t> ids, selected;
  const std::vector<Running> running = lay_out(rows, ids, selected);
  std::vector<ops::RowSlice> slices;
  for (const Running& row : running) slices.push_back(row.slice);

  // What may have to go back says so before it goes forward.
  for (const Running& row : running)
    if (!row.drafts.empty()) model.caches().mark(row.slice.slot);

  const mx::array flat(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
  const mx::array hidden = model.hidden(flat, slices);
  std::vector<mx::array> results = model.caches().state();
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

  std::vector<RowOutcome> out;
  for (const Running& row : running)
    out.push_back(finish_row(model, row, logits ? logits->data<float>() : nullptr, vocab));
  return out;
}

}  // namespace tenon::decode

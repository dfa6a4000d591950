#include "decode/draft_chain.h"

#include <algorithm>
#include <numeric>

#include "base/handover.h"

namespace tenon::decode {

namespace mx = mlx::core;

DraftChain::DraftChain(std::span<const DraftRow> rows, int vocab_size)
    : rows_(rows),
      vocab_size_(vocab_size),
      on_device_(std::all_of(rows.begin(), rows.end(),
                             [](const DraftRow& row) { return row.sampler->is_argmax(); })),
      order_(rows.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int a, int b) { return rows[a].num_drafts > rows[b].num_drafts; });
  if (!rows.empty()) num_steps_ = rows[order_[0]].num_drafts;
  if (!on_device_)
    for (int i : order_) histories_.emplace_back(rows[i].known.begin(), rows[i].known.end());
}

int DraftChain::num_active(int j) const {
  return static_cast<int>(std::count_if(rows_.begin(), rows_.end(),
                                        [&](const DraftRow& row) { return row.num_drafts > j; }));
}

mx::array DraftChain::draw(const mx::array& logits) {
  const int width = std::min(vocab_size_, logits.shape(1));
  const mx::array known =
      width < logits.shape(1) ? mx::slice(logits, {0, 0}, {logits.shape(0), width}) : logits;
  if (!on_device_) return draw_on_host(known);
  steps_.push_back(mx::astype(mx::argmax(known, -1), mx::int32));
  return steps_.back();
}

mx::array DraftChain::draw_on_host(const mx::array& logits) {
  const mx::array values = mx::contiguous(mx::astype(logits, mx::float32));
  mx::eval(values);
  Handover::returned();
  const int width = values.shape(1);
  std::vector<int32_t> ids;
  for (int i = 0; i < values.shape(0); ++i) {
    const DraftRow& row = rows_[order_[i]];
    std::vector<int32_t>& history = histories_[i];
    const uint32_t step = row.step + static_cast<uint32_t>(history.size() - row.known.size());
    const std::span<const float> own(values.data<float>() + static_cast<size_t>(i) * width, width);
    ids.push_back(std::max(0, row.sampler->guess(own, history, step)));
    history.push_back(ids.back());
  }
  return mx::array(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
}

std::vector<std::vector<int32_t>> DraftChain::finish() {
  std::vector<std::vector<int32_t>> drafts(rows_.size());
  if (on_device_) {
    mx::eval(steps_);
    Handover::returned();
    for (const mx::array& ids : steps_)
      for (int i = 0; i < ids.shape(0); ++i) drafts[order_[i]].push_back(ids.data<int32_t>()[i]);
  } else {
    for (size_t i = 0; i < order_.size(); ++i)
      drafts[order_[i]].assign(histories_[i].begin() + rows_[order_[i]].known.size(),
                               histories_[i].end());
  }
  return drafts;
}

std::vector<std::vector<int32_t>> draft_ready(
    std::span<const DraftRow> rows, const std::function<bool(const DraftRow&)>& is_ready,
    const std::function<std::vector<std::vector<int32_t>>(std::span<const DraftRow>)>& chain) {
  std::vector<std::vector<int32_t>> drafts(rows.size());
  std::vector<DraftRow> ready;
  std::vector<size_t> who;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!is_ready(rows[i])) continue;
    ready.push_back(rows[i]);
    who.push_back(i);
  }
  if (ready.empty()) return drafts;
  auto made = chain(ready);
  for (size_t i = 0; i < who.size(); ++i) drafts[who[i]] = std::move(made[i]);
  return drafts;
}

}  // namespace tenon::decode

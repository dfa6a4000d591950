// Draft source `model`: a smaller model of the same words, with caches of its own, draws as the
// target would. Its caches follow the target's: a prompt piece by piece, drafts taken back to what
// was accepted. A few missing tokens (the last draft of an accepted round, tokens drawn while
// nothing was drafted) wait for the next draft and go in with the pending token. Source: Leviathan
// et al., https://arxiv.org/abs/2211.17192.
#include <algorithm>

#include "base/log.h"
#include "decode/draft_chain.h"
#include "decode/drafts.h"

namespace tenon::decode {

namespace {

namespace mx = mlx::core;

constexpr int kDefaultDepth = 3;
constexpr int kMaxDepth = 8;
constexpr int kMissingMax = 64;  // tokens that a draft may have to feed first
constexpr int kFeedMax = 512;  // tokens of a row that one round feeds

class ModelSource final : public DraftSource {
 public:
  ModelSource(std::unique_ptr<graph::Model> model, int vocab_size)
      : model_(std::move(model)), vocab_size_(vocab_size) {}
  const char* name() const override { return "model"; }
  int default_depth() const override { return kDefaultDepth; }
  int max_depth() const override { return kMaxDepth; }
  uint64_t weight_bytes() const override { return model_->shape().weight_bytes; }
  double bytes_per_token() const override { return caches().bytes_per_token(); }
  uint64_t row_bytes() const override { return caches().row_bytes(); }
  uint64_t cache_bytes() const override { return caches().bytes(); }
  void open(int slot) override { caches().open(slot); }
  void close(int slot) override { caches().close(slot); }
  std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) override;
  void keep(std::span<const KeptRow> rows, const graph::Taps&) override;

 private:
  cache::CacheSet& caches() const { return model_->caches(); }
  mx::array forward(std::span<const int32_t> ids, ops::Rows rows);
  std::vector<std::vector<int32_t>> chain(std::span<const DraftRow> rows);
  void go_back(int slot, int len);

  std::unique_ptr<graph::Model> model_;
  int vocab_size_;  // the target's
  std::map<int, int> marks_;  // by slot: length before the last chain
};

std::vector<std::vector<int32_t>> ModelSource::draft(std::span<const DraftRow> rows) {
  return draft_ready(
      rows,
      [&](const DraftRow& row) {
        return static_cast<int>(row.known.size()) - caches().len(row.slot) <= kMissingMax;
      },
      [&](std::span<const DraftRow> ready) { return chain(ready); });
}

mx::array ModelSource::forward(std::span<const int32_t> ids, ops::Rows rows) {
  // Words that only the target knows are any word here.
  std::vector<int32_t> own(ids.begin(), ids.end());
  for (int32_t& id : own) id = std::min(id, model_->shape().vocab_size - 1);
  return model_->hidden(mx::array(own.begin(), {static_cast<int>(own.size())}, mx::int32), rows,
                        nullptr);
}

std::vector<std::vector<int32_t>> ModelSource::chain(std::span<const DraftRow> rows) {
  DraftChain chain(rows, vocab_size_);
  std::vector<int32_t> ids, last;
  std::vector<ops::RowSlice> slices;
  for (int i : chain.order()) {
    const DraftRow& row = rows[i];
    const int len = caches().len(row.slot);
    const auto fresh = row.known.subspan(len);
    slices.push_back({row.slot, static_cast<int>(ids.size()), static_cast<int>(fresh.size()), len});
    ids.insert(ids.end(), fresh.begin(), fresh.end());
    last.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  const mx::array index(last.begin(), {static_cast<int>(last.size())}, mx::int32);
  mx::array hidden = mx::take(forward(ids, slices), index, 0);
  // From here on tokens are guesses: caches go back to this point, or past it.
  for (const ops::RowSlice& slice : slices) {
    caches().mark(slice.slot);
    marks_[slice.slot] = slice.offset + slice.len;
  }
  for (int j = 0;; ++j) {
    const mx::array drawn = chain.draw(model_->logits(hidden));
    if (j + 1 == chain.num_steps()) break;
    const int active = chain.num_active(j + 1);
    slices.resize(active);
    for (int i = 0; i < active; ++i)
      slices[i] = {slices[i].slot, i, 1, slices[i].offset + slices[i].len};
    hidden = model_->hidden(mx::slice(drawn, {0}, {active}), slices, nullptr);
  }
  auto drafts = chain.finish();
  mx::eval(caches().state());
  return drafts;
}

// State that cannot go back into a chain of steps goes back to where it began; what is missing then
// is fed with the next draft.
void ModelSource::go_back(int slot, int len) {
  caches().rollback(slot, caches().can_rollback(slot, len) ? len : std::min(len, marks_.at(slot)));
}

// Rows that drafted go back to what the target kept; rows that fell behind are fed.
void ModelSource::keep(std::span<const KeptRow> rows, const graph::Taps&) {
  std::vector<int32_t> ids;
  std::vector<ops::RowSlice> slices;
  for (const KeptRow& row : rows) {
    const int len = caches().len(row.slot);
    if (len >= static_cast<int>(row.known.size())) {
      go_back(row.slot, std::min(len, row.to));
    } else if (row.to - len >= kMissingMax) {
      const int num = std::min(row.to - len, kFeedMax);
      slices.push_back({row.slot, static_cast<int>(ids.size()), num, len});
      for (int p = len; p < len + num; ++p) ids.push_back(row.token(p));
    }
  }
  if (slices.empty()) return;
  std::vector<mx::array> results = {forward(ids, slices)};
  for (mx::array& state : caches().state()) results.push_back(std::move(state));
  mx::eval(results);
}

}  // namespace

Result<std::unique_ptr<DraftSource>> make_model(const DraftSpec& spec,
                                                const DraftContext& context) {
  TENON_OK(check_draft_spec(spec, true, {}));
  if (spec.path.empty())
    return invalid("--draft model: name the drafting model, as in --draft model:PATH");
  TENON_TRY(auto model, context.load_model(spec.path));
  const int target = context.target.shape().vocab_size, own = model->shape().vocab_size;
  if (target != own)
    log_warn("--draft model:{}: {} logits, the target has {}; ids past either are not drafted",
             spec.path, own, target);
  return std::unique_ptr<DraftSource>(new ModelSource(std::move(model), target));
}

}  // namespace tenon::decode

// Draft source `mtp`: the head for multi-token prediction that a target was trained with. It reads
// the target's hidden state at a position and the token behind it, and predicts the token after
// that; further drafts read its own output instead. Row p of its cache pairs hidden state p with
// token p + 1.
//
// What the target computed and the head has not yet seen waits as hidden states [count, to), where
// count is the length of the head's cache: one row after most rounds, two when every draft was
// accepted, more while nothing is drafted. It goes in with the next draft, or by itself once it is
// long. Accepted drafts keep the rows they were drafted with.
// Option hidden: pre_norm (the default) or final_norm, what the head was trained to read.
// Source: mlx-vlm 0.7.10's qwen3_5_mtp.
#include "decode/draft_chain.h"
#include "decode/drafts.h"

namespace tenon::decode {

namespace {

namespace mx = mlx::core;

constexpr int kMaxDepth = 6;
constexpr int kWaitMax = 16;

mx::array rows_of(const mx::array& x, int from, int to) {
  return mx::slice(x, {from, 0}, {to, x.shape(1)});
}

// Rows without the array they were cut from, which a step's other rows fill.
mx::array own_rows(const mx::array& x, int from, int to) {
  return mx::contiguous(mx::copy(rows_of(x, from, to)));
}

class Mtp final : public DraftSource {
 public:
  Mtp(std::unique_ptr<graph::DraftHead> head, graph::Model& target, int tap)
      : head_(std::move(head)), target_(target), tap_(tap) {}
  const char* name() const override { return "mtp"; }
  int default_depth() const override { return head_->block_size() - 1; }
  int max_depth() const override { return kMaxDepth; }
  std::vector<int> taps() const override { return {tap_}; }
  uint64_t weight_bytes() const override { return head_->weight_bytes(); }
  double bytes_per_token() const override { return head_->caches().bytes_per_token(); }
  uint64_t cache_bytes() const override {
    uint64_t total = head_->caches().bytes();
    for (const auto& [slot, hidden] : waiting_) total += hidden.nbytes();
    return total;
  }
  void open(int slot) override {
    head_->caches().open(slot);
    waiting_.erase(slot);
  }
  void close(int slot) override {
    head_->caches().close(slot);
    waiting_.erase(slot);
  }
  std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) override;
  void keep(std::span<const KeptRow> rows, const graph::Taps& taps) override;

 private:
  mx::array forward(const mx::array& ids, const mx::array& hidden, ops::Rows rows) {
    return head_->forward(target_.embed(ids), hidden, rows);
  }
  std::vector<std::vector<int32_t>> chain(std::span<const DraftRow> rows);

  std::unique_ptr<graph::DraftHead> head_;
  graph::Model& target_;
  int tap_;
  std::map<int, mx::array> waiting_;  // by slot: hidden states that the head has not seen
};

std::vector<std::vector<int32_t>> Mtp::draft(std::span<const DraftRow> rows) {
  return draft_ready(
      rows, [&](const DraftRow& row) { return waiting_.contains(row.slot); },
      [&](std::span<const DraftRow> ready) { return chain(ready); });
}

std::vector<std::vector<int32_t>> Mtp::chain(std::span<const DraftRow> rows) {
  cache::CacheSet& caches = head_->caches();
  DraftChain chain(rows, target_.shape().vocab_size);
  std::vector<int32_t> ids, last;
  std::vector<mx::array> hiddens;
  std::vector<ops::RowSlice> slices;
  for (int i : chain.order()) {
    const DraftRow& row = rows[i];
    const int count = caches.len(row.slot), num = static_cast<int>(row.known.size()) - 1 - count;
    hiddens.push_back(waiting_.at(row.slot));
    if (num < 1 || hiddens.back().shape(0) != num)
      throw std::logic_error(fmt::format("[mtp] {} hidden states wait, {} positions are missing",
                                         hiddens.back().shape(0), num));
    slices.push_back({row.slot, static_cast<int>(ids.size()), num, count});
    ids.insert(ids.end(), row.known.begin() + count + 1, row.known.end());
    last.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  const mx::array flat(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
  const mx::array index(last.begin(), {static_cast<int>(last.size())}, mx::int32);
  mx::array out = mx::take(forward(flat, mx::concatenate(hiddens, 0), slices), index, 0);
  for (const ops::RowSlice& slice : slices) {
    waiting_.erase(slice.slot);
    caches.mark(slice.slot);
  }
  for (int j = 0;; ++j) {
    const mx::array drawn = chain.draw(target_.logits(out));
    if (j + 1 == chain.num_steps()) break;
    const int active = chain.num_active(j + 1);
    slices.resize(active);
    for (int i = 0; i < active; ++i)
      slices[i] = {slices[i].slot, i, 1, slices[i].offset + slices[i].len};
    out = forward(mx::slice(drawn, {0}, {active}), rows_of(out, 0, active), slices);
  }
  auto drafts = chain.finish();
  mx::eval(caches.state());
  return drafts;
}

void Mtp::keep(std::span<const KeptRow> rows, const graph::Taps& taps) {
  cache::CacheSet& caches = head_->caches();
  const mx::array& tapped = taps.found.at(0);
  std::vector<int32_t> ids;
  std::vector<mx::array> hiddens, results;
  std::vector<ops::RowSlice> slices;
  for (const KeptRow& row : rows) {
    // The pair of the last position waits for its token.
    const int count = std::min(caches.len(row.slot), row.to - 1);
    caches.rollback(row.slot, count);
    const int skip = std::max(0, count - row.from);
    mx::array fresh = own_rows(tapped, row.start + skip, row.start + row.to - row.from);
    const auto old = waiting_.find(row.slot);
    if (old != waiting_.end()) {
      fresh = mx::concatenate({old->second, fresh}, 0);
      waiting_.erase(old);
    }
    if (const int num = row.to - 1 - count; num >= kWaitMax) {
      slices.push_back({row.slot, static_cast<int>(ids.size()), num, count});
      for (int p = count + 1; p < row.to; ++p) ids.push_back(row.token(p));
      hiddens.push_back(rows_of(fresh, 0, num));
      fresh = own_rows(fresh, num, num + 1);
    }
    results.push_back(fresh);
    waiting_.emplace(row.slot, std::move(fresh));
  }
  if (!slices.empty()) {
    const mx::array flat(ids.begin(), {static_cast<int>(ids.size())}, mx::int32);
    results.push_back(forward(flat, mx::concatenate(hiddens, 0), slices));
    for (mx::array& state : caches.state()) results.push_back(std::move(state));
  }
  mx::eval(results);
}

}  // namespace

Result<std::unique_ptr<DraftSource>> make_mtp(const DraftSpec& spec, const DraftContext& context) {
  TENON_OK(check_draft_spec(spec, true, {"hidden"}));
  const auto option = spec.options.find("hidden");
  const std::string reads = option == spec.options.end() ? "pre_norm" : option->second;
  if (reads != "pre_norm" && reads != "final_norm")
    return invalid("--draft mtp: hidden={} must be pre_norm or final_norm", reads);
  TENON_TRY(auto head, context.load_head(spec.path));
  const graph::ModelShape& target = context.target.shape();
  if (head->hidden_size() != target.hidden_size)
    return unsupported(
        "--draft mtp: the head reads hidden states of width {}, the target's have {}: it belongs "
        "to another checkpoint",
        head->hidden_size(), target.hidden_size);
  const int tap = reads == "pre_norm" ? target.num_layers - 1 : target.num_layers;
  return std::unique_ptr<DraftSource>(new Mtp(std::move(head), context.target, tap));
}

}  // namespace tenon::decode

#include "decode/block_source.h"

#include <algorithm>

#include "base/handover.h"
#include "decode/draft_chain.h"

namespace tenon::decode {

namespace {

namespace mx = mlx::core;

class BlockSource final : public DraftSource {
 public:
  BlockSource(const char* name, std::unique_ptr<graph::BlockDrafter> drafter, int vocab_size,
              std::optional<float> min_confidence)
      : name_(name),
        drafter_(std::move(drafter)),
        vocab_size_(vocab_size),
        min_confidence_(min_confidence) {}
  const char* name() const override { return name_; }
  int default_depth() const override { return drafter_->max_drafts(); }
  int max_depth() const override { return drafter_->max_drafts(); }
  std::vector<int> taps() const override { return drafter_->taps(); }
  uint64_t weight_bytes() const override { return drafter_->weight_bytes(); }
  double bytes_per_token() const override { return caches().bytes_per_token(); }
  // A block lies behind its context while it is computed.
  uint64_t row_bytes() const override {
    return caches().row_bytes() +
           static_cast<uint64_t>((drafter_->max_drafts() + 1) * caches().bytes_per_token());
  }
  uint64_t cache_bytes() const override { return caches().bytes(); }
  void open(int slot) override { caches().open(slot); }
  void close(int slot) override { caches().close(slot); }
  std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) override;
  void keep(std::span<const KeptRow> rows, const graph::Taps& taps) override;

 private:
  cache::CacheSet& caches() const { return drafter_->caches(); }
  std::unique_ptr<graph::DraftBlock> begin(std::span<const DraftRow> rows,
                                           const std::vector<int>& order);
  bool prune(int j, const mx::array& confidence, std::span<int> lens) const;

  const char* const name_;
  const std::unique_ptr<graph::BlockDrafter> drafter_;
  const int vocab_size_;  // the target's
  const std::optional<float> min_confidence_;
};

// The context of a row is every token but its last.
std::unique_ptr<graph::DraftBlock> BlockSource::begin(std::span<const DraftRow> rows,
                                                      const std::vector<int>& order) {
  std::vector<graph::BlockRow> blocks;
  for (int i : order) {
    const DraftRow& row = rows[i];
    const int len = caches().len(row.slot), want = static_cast<int>(row.known.size()) - 1;
    if (len != want)
      throw std::logic_error(
          fmt::format("[{}] a context of {} tokens, the target's has {}", name_, len, want));
    caches().mark(row.slot);
    blocks.push_back({row.slot, row.known.back(), row.num_drafts});
  }
  return drafter_->begin(blocks);
}

// lens: of each row that wants draft j. False: none of them takes another draft.
bool BlockSource::prune(int j, const mx::array& confidence, std::span<int> lens) const {
  const float least = drafter_->min_confidence(j, min_confidence_);
  if (!(least > 0)) return true;
  const mx::array values = mx::contiguous(confidence);
  mx::eval(values);
  Handover::returned();
  bool more = false;
  for (size_t i = 0; i < lens.size(); ++i) {
    if (lens[i] > j && values.data<float>()[i] < least) lens[i] = j;
    more |= lens[i] > j;
  }
  return more;
}

std::vector<std::vector<int32_t>> BlockSource::draft(std::span<const DraftRow> asking) {
  std::vector<DraftRow> rows(asking.begin(), asking.end());
  for (DraftRow& row : rows) row.num_drafts = std::min(row.num_drafts, drafter_->max_drafts());
  DraftChain chain(rows, vocab_size_);
  const auto block = begin(rows, chain.order());
  std::vector<int32_t> anchors;
  std::vector<int> lens;  // by chain.order(): drafts that are worth it
  for (int i : chain.order()) {
    anchors.push_back(rows[i].known.back());
    lens.push_back(rows[i].num_drafts);
  }
  mx::array previous(anchors.begin(), {static_cast<int>(anchors.size())}, mx::int32);
  for (int j = 0; j < chain.num_steps(); ++j) {
    const int active = chain.num_active(j);
    const graph::DraftStep step = block->next(mx::slice(previous, {0}, {active}));
    if (step.confidence && !prune(j, *step.confidence, std::span(lens).first(active))) break;
    previous = chain.draw(step.logits);
  }
  auto drafts = chain.finish();
  mx::eval(caches().state());
  for (size_t i = 0; i < lens.size(); ++i) {
    const int at = chain.order()[i];
    if (static_cast<int>(drafts[at].size()) > lens[i]) drafts[at].resize(lens[i]);
    caches().rollback(rows[at].slot, static_cast<int>(rows[at].known.size()) - 1);
  }
  return drafts;
}

// Every token that the target keeps, at once: contexts never lag behind.
void BlockSource::keep(std::span<const KeptRow> rows, const graph::Taps& taps) {
  std::vector<ops::RowSlice> slices;
  int num = 0;
  for (const KeptRow& row : rows) {
    const int len = caches().len(row.slot);
    if (len != row.from)
      throw std::logic_error(
          fmt::format("[{}] a context of {} tokens, the next is {}", name_, len, row.from));
    slices.push_back({row.slot, num, row.to - row.from, row.from});
    num += row.to - row.from;
  }
  std::vector<mx::array> tapped;
  for (const mx::array& states : taps.found) {
    std::vector<mx::array> parts;
    for (const KeptRow& row : rows)
      parts.push_back(
          mx::slice(states, {row.start, 0}, {row.start + row.to - row.from, states.shape(1)}));
    tapped.push_back(parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0));
  }
  drafter_->append(tapped, slices);
  mx::eval(caches().state());
}

}  // namespace

Result<std::unique_ptr<DraftSource>> make_block_source(const char* name, graph::BlockLayout layout,
                                                       const DraftSpec& spec,
                                                       const DraftContext& context) {
  TENON_OK(check_draft_spec(spec, true, {"min_confidence"}));
  if (spec.path.empty())
    return invalid("--draft {}: name the drafter's folder, as in --draft {}:PATH", name, name);
  TENON_TRY(const auto least, draft_number(spec, "min_confidence", 0, 1));
  TENON_TRY(auto drafter, context.load_block(layout, spec.path));
  return std::unique_ptr<DraftSource>(
      new BlockSource(name, std::move(drafter), context.target.shape().vocab_size, least));
}

}  // namespace tenon::decode

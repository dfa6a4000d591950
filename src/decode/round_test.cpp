// The walk, with a draft source that is told what to propose: whatever it proposes, the tokens are
// those of plain decoding, and the caches hold exactly what was kept.
#include <gtest/gtest.h>

#include "decode/decode.h"

namespace tenon::decode {
namespace {

namespace mx = mlx::core;

constexpr int kVocab = 13;

// After token t at position p comes (5 t + p) mod V: history matters through the position.
class ToyModel final : public graph::Model {
 public:
  ToyModel() {
    auto set =
        cache::CacheSet::make({{"attention", {1, 2, 2, mx::float32}}}, **ops::make_kernels({}));
    caches_ = std::move(set).value();
    shape_ = {1, 2, kVocab, 0, 0};
  }
  const graph::ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array hidden(const mx::array& ids, ops::Rows rows) override {
    const mx::array kv = mx::ones({ids.shape(0), 1, 2});
    mx::eval(caches_.layer(0).attend({kv, kv, kv, {}}, rows, {1.0f}));
    std::vector<float> next;
    for (const ops::RowSlice& row : rows)
      for (int i = 0; i < row.len; ++i)
        next.push_back(
            static_cast<float>((5 * ids.data<int32_t>()[row.start + i] + row.offset + i) % kVocab));
    return mx::array(next.begin(), {static_cast<int>(next.size()), 1});
  }
  mx::array logits(const mx::array& hidden) override {
    const mx::array ids = mx::reshape(mx::arange(0.0, kVocab, 1.0, mx::float32), {1, kVocab});
    return mx::negative(mx::abs(ids - hidden));
  }

 private:
  graph::ModelShape shape_;
  cache::CacheSet caches_;
};

class Scripted final : public DraftSource {
 public:
  explicit Scripted(std::vector<int32_t> next) : next_(std::move(next)) {}
  const char* name() const override { return "scripted"; }
  std::vector<int32_t> draft(std::span<const int32_t>, int) override { return next_; }

 private:
  std::vector<int32_t> next_;
};

std::vector<int32_t> plain(int steps) {
  std::vector<int32_t> known{1, 2};
  for (int i = 0; i < steps; ++i)
    known.push_back((5 * known.back() + static_cast<int>(known.size()) - 1) % kVocab);
  return known;
}

TEST(Round, AnyDraftsGiveThePlainTokens) {
  const std::vector<int32_t> want = plain(8);
  const std::vector<int32_t> right(want.begin() + 2, want.begin() + 6);
  for (int good = 0; good <= 4; ++good) {
    std::vector<int32_t> drafts = right;
    if (good < 4) drafts[good] = (drafts[good] + 1) % kVocab;
    ToyModel model;
    model.caches().open(0);
    Scripted source(drafts);
    SamplingParams greedy;
    greedy.temperature = 0;
    StepSampler sampler(greedy, -1);
    const std::vector<int32_t> known{1, 2};
    RowWork work{.slot = 0,
                 .known = known,
                 .computed = 0,
                 .count = 2,
                 .num_drafts = 4,
                 .sampler = &sampler,
                 .source = &source};
    const auto out = run_round(model, std::span(&work, 1));
    ASSERT_FALSE(out[0].error);
    EXPECT_EQ(out[0].num_accepted, good);
    EXPECT_EQ(out[0].computed, 2 + good);
    EXPECT_EQ(model.caches().len(0), 2 + good);
    ASSERT_EQ(out[0].drawn.size(), static_cast<size_t>(good + 1));
    for (int i = 0; i <= good; ++i) EXPECT_EQ(out[0].drawn[i].id, want[2 + i]);
  }
}

TEST(Round, RowsBehindDrawNothing) {
  ToyModel model;
  model.caches().open(0);
  StepSampler sampler({}, -1);
  const std::vector<int32_t> known{1, 2, 3, 4};
  RowWork work{.slot = 0, .known = known, .computed = 0, .count = 3, .sampler = &sampler};
  const auto out = run_round(model, std::span(&work, 1));
  EXPECT_TRUE(out[0].drawn.empty());
  EXPECT_EQ(out[0].computed, 3);
}

TEST(Drafts, RegistryMakesEachAndRefusesOthers) {
  for (const std::string& name : draft_sources()) EXPECT_TRUE(make_draft_source(name).ok()) << name;
  const auto none = make_draft_source("telepathy");
  EXPECT_EQ(none.error().code, Code::unsupported);
  EXPECT_NE(none.error().message.find("none"), std::string::npos);
}

}  // namespace
}  // namespace tenon::decode

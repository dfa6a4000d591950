// What the sources of block drafters feed and ask theirs, round by round: which rows of a context
// are kept, which drafts go out. The drafter here writes down what it is given.
#include <gmock/gmock.h>

#include <cmath>

#include "decode/decode.h"
#include "decode/toy_target.h"

namespace tenon::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kBlock = 4;

struct Fed {
  int slot, position, first, second;  // what its two taps said there
  bool operator==(const Fed&) const = default;
};
void PrintTo(const Fed& f, std::ostream* out) {
  *out << "{slot " << f.slot << " position " << f.position << " taps " << f.first << " " << f.second
       << "}";
}
struct Asked {
  int slot, context, anchor, num_drafts;
  bool operator==(const Asked&) const = default;
};

struct Script {
  std::vector<Fed> fed;
  std::vector<Asked> asked;
  std::vector<std::vector<int32_t>> previous;
  std::vector<std::vector<float>> confidence;  // of each draft, by row of the block
  std::vector<float> calibrated;
  bool fails = false;
};

std::vector<int32_t> ids_of(const mx::array& ids) {
  const mx::array values = mx::contiguous(ids);
  mx::eval(values);
  Handover::returned();
  return {values.data<int32_t>(), values.data<int32_t>() + values.size()};
}

// After token t it predicts t + 1.
class Block final : public graph::DraftBlock {
 public:
  Block(Script& script, graph::Model& target) : script_(script), target_(target) {}
  graph::DraftStep next(const mx::array& previous) override {
    script_.previous.push_back(ids_of(previous));
    graph::DraftStep step{target_.logits(target_.embed(previous + mx::array(1))), {}};
    if (j_ < script_.confidence.size()) {
      const std::vector<float>& c = script_.confidence[j_];
      step.confidence = mx::array(c.begin(), {previous.shape(0)}, mx::float32);
    }
    ++j_;
    return step;
  }

 private:
  Script& script_;
  graph::Model& target_;
  size_t j_ = 0;
};

class Drafter final : public graph::BlockDrafter {
 public:
  Drafter(Script& script, graph::Model& target)
      : script_(script), target_(target), caches_(toy_caches()) {}
  const std::vector<int>& taps() const override { return taps_; }
  int max_drafts() const override { return kBlock; }
  float min_confidence(int j, std::optional<float> wanted) const override {
    return script_.calibrated.empty() ? wanted.value_or(0) : script_.calibrated[j];
  }
  uint64_t weight_bytes() const override { return 77; }
  cache::CacheSet& caches() override { return caches_; }
  void append(const std::vector<mx::array>& tapped, ops::Rows rows) override {
    if (script_.fails) throw std::runtime_error("[drafter] told to fail");
    ASSERT_EQ(tapped.size(), 2u);
    const mx::array a = mx::contiguous(tapped[0]), b = mx::contiguous(tapped[1]);
    mx::eval(a, b);
    Handover::returned();
    for (const ops::RowSlice& row : rows)
      for (int i = 0; i < row.len; ++i) {
        const size_t at = 2 * static_cast<size_t>(row.start + i);
        script_.fed.push_back({row.slot, row.offset + i, static_cast<int>(a.data<float>()[at]),
                               static_cast<int>(b.data<float>()[at])});
      }
    decode::append(caches_, rows);
  }
  std::unique_ptr<graph::DraftBlock> begin(std::span<const graph::BlockRow> rows) override {
    std::vector<ops::RowSlice> slices;
    for (const graph::BlockRow& row : rows) {
      const int len = caches_.len(row.slot);
      script_.asked.push_back({row.slot, len, row.anchor, row.num_drafts});
      slices.push_back({row.slot, static_cast<int>(slices.size()) * kBlock, kBlock, len});
    }
    decode::append(caches_, slices);
    return std::make_unique<Block>(script_, target_);
  }

 private:
  Script& script_;
  graph::Model& target_;
  const std::vector<int> taps_{1, 3};
  cache::CacheSet caches_;
};

class BlockSourceTest : public SourceTest {
 protected:
  void SetUp() override { start("dspark:/there"); }
  Result<std::unique_ptr<DraftSource>> make(const std::string& text) {
    const auto none = [](const std::string&) -> Error { return not_found("nothing"); };
    const auto load = [this](graph::BlockLayout,
                             const std::string&) -> Result<std::unique_ptr<graph::BlockDrafter>> {
      auto made = std::make_unique<Drafter>(script, target);
      caches = &made->caches();
      return std::unique_ptr<graph::BlockDrafter>(std::move(made));
    };
    return make_draft_source(*parse_draft_spec(text), {target, none, none, load});
  }
  void start(const std::string& text) { SourceTest::start(make(text)); }
  // Taps of `num` tokens: 10 * mark and 10 * mark + 1 of the token marked so.
  static graph::Taps taps_of(const std::vector<int>& marks) {
    graph::Taps taps{{1, 3}, {}};
    for (int tap = 0; tap < 2; ++tap) {
      std::vector<float> values;
      for (int mark : marks) values.insert(values.end(), {10.0f * mark + tap, 0});
      taps.found.emplace_back(values.begin(), mx::Shape{static_cast<int>(marks.size()), 2});
    }
    return taps;
  }
  // The target computed more than it keeps: positions are their own marks.
  void keep(int to, const std::vector<int32_t>& accepted = {}) {
    std::vector<int> marks;
    for (int p = computed; p < to + 3; ++p) marks.push_back(p);
    keep_row(to, accepted, taps_of(marks));
  }
  void prompt() {
    known = {10, 11, 12};
    keep(3);
    known.push_back(13);
  }
  Script script;
  cache::CacheSet* caches = nullptr;
};

TEST_F(BlockSourceTest, SaysWhatItsDrafterIs) {
  EXPECT_STREQ(source->name(), "dspark");
  EXPECT_EQ(source->default_depth(), kBlock);
  EXPECT_EQ(source->max_depth(), kBlock);
  EXPECT_THAT(source->taps(), ElementsAre(1, 3));
  EXPECT_EQ(source->weight_bytes(), 77u);
  EXPECT_GT(source->bytes_per_token(), 0);
  EXPECT_GE(source->row_bytes(), kBlock * source->bytes_per_token());
}

// At every depth, whatever is accepted, the context is what the target keeps, and nothing else.
TEST_F(BlockSourceTest, ContextsFollowTheTargetForEveryOutcome) {
  for (int depth = 1; depth <= kBlock; ++depth)
    for (int k = 0; k <= depth; ++k) {
      start("dspark:/there");
      script = {};
      prompt();
      const auto drafts = draft(depth);
      ASSERT_EQ(drafts.size(), static_cast<size_t>(depth));
      for (int j = 0; j < depth; ++j) EXPECT_EQ(drafts[j], 14 + j);
      EXPECT_EQ(caches->len(0), 3);
      keep(4 + k, {drafts.begin(), drafts.begin() + k});
      known.insert(known.end(), drafts.begin(), drafts.begin() + k);
      known.push_back(77);
      EXPECT_EQ(caches->len(0), 4 + k);
      draft(1);
      EXPECT_EQ(script.asked.back(), (Asked{0, 4 + k, 77, 1})) << depth << " " << k;
      ASSERT_EQ(script.fed.size(), static_cast<size_t>(4 + k));
      for (int p = 0; p < 4 + k; ++p)
        EXPECT_EQ(script.fed[p], (Fed{0, p, 10 * p, 10 * p + 1})) << depth << " " << k;
    }
}

// A prompt in pieces and rounds without drafts: every token goes in once.
TEST_F(BlockSourceTest, RoundsWithoutDraftsCount) {
  known.assign(40, 5);
  for (int to : {1, 17, 40}) keep(to);
  for (int i = 0; i < 5; ++i) {
    known.push_back(50 + i);
    keep(static_cast<int>(known.size()));
    EXPECT_EQ(caches->len(0), static_cast<int>(known.size()));
  }
  known.push_back(7);
  EXPECT_THAT(draft(1), ElementsAre(8));
  ASSERT_EQ(script.fed.size(), 45u);
  for (int p = 0; p < 45; ++p) EXPECT_EQ(script.fed[p], (Fed{0, p, 10 * p, 10 * p + 1}));
}

// Rows lie anywhere on the step's axis; some of it is nobody's here.
TEST_F(BlockSourceTest, RowsSideBySide) {
  source->open(5);
  const std::vector<int32_t> a{1, 2}, b{3, 4, 5};
  const KeptRow kept[] = {{5, b, {}, 0, 3, 4}, {0, a, {}, 0, 2, 1}};
  source->keep(kept, taps_of({90, 1, 2, 91, 4, 5, 6, 92}));
  EXPECT_THAT(script.fed, ElementsAre(Fed{5, 0, 40, 41}, Fed{5, 1, 50, 51}, Fed{5, 2, 60, 61},
                                      Fed{0, 0, 10, 11}, Fed{0, 1, 20, 21}));
  const std::vector<int32_t> more_a{1, 2, 30}, more_b{3, 4, 5, 60};
  const DraftRow rows[] = {{0, more_a, 1, 0, &greedy}, {5, more_b, 3, 0, &greedy}};
  EXPECT_THAT(source->draft(rows), ElementsAre(ElementsAre(31), ElementsAre(61, 62, 63)));
  // Blocks come by falling number of drafts, and rows that have theirs are left out.
  EXPECT_THAT(script.asked, ElementsAre(Asked{5, 3, 60, 3}, Asked{0, 2, 30, 1}));
  EXPECT_THAT(script.previous, ElementsAre(ElementsAre(60, 30), ElementsAre(61), ElementsAre(62)));
  EXPECT_EQ(caches->len(0), 2);
  EXPECT_EQ(caches->len(5), 3);
}

TEST_F(BlockSourceTest, ABlockHasNoMoreDrafts) {
  prompt();
  EXPECT_THAT(draft(9), ElementsAre(14, 15, 16, 17));
  EXPECT_EQ(script.asked.back().num_drafts, kBlock);
}

TEST_F(BlockSourceTest, UnsureDraftsEndARow) {
  start("dspark:/there,min_confidence=0.5");
  prompt();
  script.confidence = {{0.9f}, {0.5f}, {0.49f}, {1.0f}};
  EXPECT_THAT(draft(4), ElementsAre(14, 15));
  EXPECT_EQ(script.previous.size(), 3u);  // the fourth is never asked for
  EXPECT_EQ(caches->len(0), 3);
  script.confidence = {{0.1f}};
  EXPECT_THAT(draft(4), IsEmpty());
  EXPECT_EQ(caches->len(0), 3);
  script.confidence = {{1.0f}, {std::nanf("")}, {1.0f}, {1.0f}};
  EXPECT_THAT(draft(4), ElementsAre(14, 15, 16, 17));  // no number is no doubt
  script.calibrated = {0, 0.95f, 0, 0};  // these count instead
  script.confidence = {{0.0f}, {0.9f}};
  EXPECT_THAT(draft(4), ElementsAre(14));
}

TEST_F(BlockSourceTest, UnsureRowsEndAlone) {
  start("dspark:/there,min_confidence=0.5");
  source->open(1);
  const std::vector<int32_t> a{1, 2}, b{3, 4};
  const KeptRow kept[] = {{0, a, {}, 0, 1, 0}, {1, b, {}, 0, 1, 1}};
  source->keep(kept, taps_of({1, 2}));
  script.confidence = {{1, 1}, {0.1f, 1}, {1, 1}};
  const DraftRow rows[] = {{0, a, 3, 0, &greedy}, {1, b, 3, 0, &greedy}};
  EXPECT_THAT(source->draft(rows), ElementsAre(ElementsAre(3), ElementsAre(5, 6, 7)));
}

TEST_F(BlockSourceTest, WithoutAThresholdNothingIsLeftOut) {
  prompt();
  script.confidence = {{0.0f}, {0.0f}, {0.0f}};
  EXPECT_THAT(draft(3), ElementsAre(14, 15, 16));
}

// Each draft is what the target's own draw of that step would be of these logits.
TEST_F(BlockSourceTest, DrawsAsTheTargetWill) {
  SamplingParams params;
  params.temperature = 8;
  params.seed = 3;
  StepSampler warm(params, -1), same(params, -1);
  prompt();
  const DraftRow row{0, known, 3, 5, &warm};
  const auto drafts = source->draft(std::span(&row, 1))[0];
  std::vector<int32_t> history = known, want;
  for (uint32_t j = 0; j < 3; ++j) {
    const mx::array next(history.back() + 1);
    const mx::array logits = target.logits(target.embed(mx::reshape(next, {1})));
    mx::eval(logits);
    Handover::returned();
    want.push_back(same.guess({logits.data<float>(), kToyVocab}, history, 5 + j));
    history.push_back(want.back());
  }
  EXPECT_EQ(drafts, want);
  EXPECT_NE(drafts, (std::vector<int32_t>{14, 15, 16}));  // else this would show nothing
}

TEST_F(BlockSourceTest, FailuresAndClosedRows) {
  prompt();
  known.push_back(14);
  EXPECT_THROW(draft(1), std::logic_error);  // the context is a token short
  computed = 5;
  EXPECT_THROW(keep(6), std::logic_error);
  source->close(0);
  source->close(0);
  EXPECT_EQ(source->cache_bytes(), 0u);
  source->open(0);
  known.clear();
  computed = 0;
  prompt();
  EXPECT_THAT(draft(1), ElementsAre(14));
  script.fails = true;
  EXPECT_THROW(keep(4), std::runtime_error);
}

TEST_F(BlockSourceTest, RefusalsSayWhatIsWrong) {
  const auto message = [&](const std::string& text) {
    const auto made = make(text);
    EXPECT_FALSE(made.ok()) << text;
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_THAT(message("dspark"), HasSubstr("--draft dspark:PATH"));
  EXPECT_THAT(message("dspark:/there,depth=3"), HasSubstr("min_confidence"));
  for (const char* bad : {"1.5", "-0.1", "x", "nan", "", "0.5x", "1e99"})
    EXPECT_THAT(message(fmt::format("dspark:/there,min_confidence={}", bad)),
                HasSubstr("from 0 to 1"))
        << bad;
}

}  // namespace
}  // namespace tenon::decode

// Which rows the `mtp` source feeds its head, round by round: the worked example of
// the speculative specification 5.5 and its neighbours, with a head that writes down what it is
// given.
#include <gmock/gmock.h>

#include "decode/decode.h"
#include "decode/toy_target.h"

namespace tenon::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// After token t it predicts t + 1; its own hidden states are marked 1000 + position.
class Head final : public graph::DraftHead {
 public:
  struct Fed {
    int slot, position, token, hidden;
    bool operator==(const Fed&) const = default;
  };
  explicit Head(std::vector<Fed>* log) : log_(log), caches_(toy_caches()) {}
  int hidden_size() const override { return 2; }
  int block_size() const override { return 3; }
  uint64_t weight_bytes() const override { return 0; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array forward(const mx::array& embedded, const mx::array& hidden, ops::Rows rows) override {
    if (fails) throw std::runtime_error("[head] told to fail");
    const mx::array e = mx::contiguous(embedded), h = mx::contiguous(hidden);
    mx::eval(e, h);
    Handover::returned();
    append(caches_, rows);
    std::vector<float> out;
    for (const ops::RowSlice& row : rows)
      for (int i = 0; i < row.len; ++i) {
        const float token = e.data<float>()[2 * (row.start + i)];
        const float marker = h.data<float>()[2 * (row.start + i) + 1];
        log_->push_back(
            {row.slot, row.offset + i, static_cast<int>(token), static_cast<int>(marker)});
        out.push_back(token + 1);
        out.push_back(static_cast<float>(1000 + row.offset + i));
      }
    return mx::array(out.begin(), {e.shape(0), 2});
  }
  bool fails = false;

 private:
  std::vector<Fed>* log_;
  cache::CacheSet caches_;
};
void PrintTo(const Head::Fed& f, std::ostream* out) {
  *out << "{slot " << f.slot << " position " << f.position << " token " << f.token << " hidden "
       << f.hidden << "}";
}

class MtpTest : public SourceTest {
 protected:
  using Fed = Head::Fed;
  void SetUp() override { start(""); }
  void start(const std::string& options) {
    const auto refuse = [](const std::string&) -> Result<std::unique_ptr<graph::Model>> {
      return not_found("no model");
    };
    const auto load = [this](const std::string&) -> Result<std::unique_ptr<graph::DraftHead>> {
      auto made = std::make_unique<Head>(&fed);
      head = made.get();
      return std::unique_ptr<graph::DraftHead>(std::move(made));
    };
    SourceTest::start(
        make_draft_source(*parse_draft_spec("mtp" + options), {target, refuse, load}));
  }
  // The target computes up to `to` (accepted drafts included): hidden states are their positions.
  void keep(int to, const std::vector<int32_t>& accepted = {}) {
    graph::Taps taps{source->taps(), {}};
    std::vector<float> marks;
    for (int p = computed; p < to + 3; ++p) {  // a verification computes more than is kept
      marks.push_back(0);
      marks.push_back(static_cast<float>(p));
    }
    taps.found.emplace_back(marks.begin(), mx::Shape{static_cast<int>(marks.size()) / 2, 2});
    keep_row(to, accepted, taps);
  }
  std::vector<Fed> fed;
  Head* head = nullptr;
};

TEST_F(MtpTest, TheWorkedExample) {
  known = {10, 11, 12, 13, 14};
  keep(5);
  known.push_back(15);
  EXPECT_THAT(draft(2), ElementsAre(16, 17));
  EXPECT_THAT(fed, ElementsAre(Fed{0, 0, 11, 0}, Fed{0, 1, 12, 1}, Fed{0, 2, 13, 2},
                               Fed{0, 3, 14, 3}, Fed{0, 4, 15, 4}, Fed{0, 5, 16, 1004}));
  fed.clear();
  keep(8, {16, 17});  // all accepted, then the bonus
  known.insert(known.end(), {16, 17, 18});
  EXPECT_EQ(head->caches().len(0), 6);
  EXPECT_THAT(draft(2), ElementsAre(19, 20));
  EXPECT_THAT(fed, ElementsAre(Fed{0, 6, 17, 6}, Fed{0, 7, 18, 7}, Fed{0, 8, 19, 1007}));
  fed.clear();
  keep(9);  // none accepted: row 8 goes, the correction comes in its place
  known.push_back(30);
  EXPECT_EQ(head->caches().len(0), 8);
  EXPECT_THAT(draft(1), ElementsAre(31));
  EXPECT_THAT(fed, ElementsAre(Fed{0, 8, 30, 8}));
}

TEST_F(MtpTest, AnAcceptedDraftKeepsItsRow) {
  known = {10, 11, 12, 13, 14};
  keep(5);
  known.push_back(15);
  draft(3);
  fed.clear();
  keep(7, {16});  // one of three
  known.insert(known.end(), {16, 40});
  EXPECT_EQ(head->caches().len(0), 6);
  EXPECT_THAT(draft(1), ElementsAre(41));
  EXPECT_THAT(fed, ElementsAre(Fed{0, 6, 40, 6}));
}

// Every number of accepted drafts at every depth leaves one row, or two, to be fed next.
TEST_F(MtpTest, RowsFollowPositionsForEveryOutcome) {
  for (int depth = 1; depth <= 4; ++depth)
    for (int k = 0; k <= depth; ++k) {
      start("");
      known = {1, 2, 3};
      keep(3);
      known.push_back(4);
      const auto drafts = draft(depth);
      ASSERT_EQ(drafts.size(), static_cast<size_t>(depth));
      keep(4 + k, {drafts.begin(), drafts.begin() + k});
      known.insert(known.end(), drafts.begin(), drafts.begin() + k);
      known.push_back(77);
      fed.clear();
      draft(1);
      const int pending = static_cast<int>(known.size()) - 1;
      EXPECT_EQ(fed.size(), k == depth ? 2u : 1u);
      EXPECT_EQ(fed.back(), (Fed{0, pending - 1, 77, pending - 1})) << depth << " " << k;
      EXPECT_EQ(head->caches().len(0), pending);
    }
}

// Rounds without drafts, long prompts: what waits goes in by itself before it grows long.
TEST_F(MtpTest, WhatWaitsIsBounded) {
  known.assign(40, 5);
  keep(40);
  EXPECT_EQ(head->caches().len(0), 39);
  for (int i = 0; i < 40; ++i) {
    known.push_back(50 + i);
    keep(static_cast<int>(known.size()));
    EXPECT_LE(static_cast<int>(known.size()) - head->caches().len(0), 17);
  }
  known.push_back(7);
  EXPECT_THAT(draft(1), ElementsAre(8));
  for (size_t i = 0; i < fed.size(); ++i) {
    EXPECT_EQ(fed[i].position, static_cast<int>(i));
    EXPECT_EQ(fed[i].hidden, static_cast<int>(i));
    EXPECT_EQ(fed[i].token, known[i + 1]);
  }
}

TEST_F(MtpTest, OneTokenPromptsDraft) {
  known = {10};
  keep(1);
  known.push_back(20);
  EXPECT_THAT(draft(2), ElementsAre(21, 22));
  EXPECT_THAT(fed, ElementsAre(Fed{0, 0, 20, 0}, Fed{0, 1, 21, 1000}));
}

TEST_F(MtpTest, ReadsBeforeTheFinalNormUnlessToldOtherwise) {
  EXPECT_THAT(source->taps(), ElementsAre(3));
  start(":hidden=final_norm");
  EXPECT_THAT(source->taps(), ElementsAre(4));
}

TEST_F(MtpTest, ClosedRowsAndFailures) {
  known = {10, 11};
  keep(2);
  known.push_back(12);
  source->close(0);
  EXPECT_THAT(draft(2), ElementsAre());  // nothing waits there
  source->close(0);
  source->open(0);
  EXPECT_EQ(head->caches().len(0), 0);
  known = {10, 11};
  computed = 0;
  keep(2);
  known.push_back(12);
  head->fails = true;
  EXPECT_THROW(draft(2), std::runtime_error);
  source->close(0);
  EXPECT_EQ(source->cache_bytes(), 0u);
}

}  // namespace
}  // namespace tenon::decode

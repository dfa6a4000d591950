// Which tokens the `model` source feeds its drafting model, round by round: what the target
// computed, once each, in order, and never far behind, so that it can draft whenever it is asked.
#include <gmock/gmock.h>

#include "decode/decode.h"
#include "decode/toy_target.h"

namespace tenon::decode {
namespace {

using ::testing::ElementsAre;

// Says t + 1 after t, and writes down what its caches hold.
class Drafter final : public ToyTarget {
 public:
  Drafter() : ToyTarget(kToyVocab) {}
  mx::array hidden(const mx::array& ids, ops::Rows rows, graph::Taps*) override {
    mx::eval(ids);
    Handover::returned();
    append(caches(), rows);
    longest_step = std::max(longest_step, ids.shape(0));
    for (const ops::RowSlice& row : rows) {
      std::vector<int32_t>& held = tokens[row.slot];
      held.resize(row.offset);
      for (int i = 0; i < row.len; ++i) held.push_back(ids.data<int32_t>()[row.start + i]);
    }
    return embed(ids + mx::array(1));
  }
  std::map<int, std::vector<int32_t>> tokens;  // by slot
  int longest_step = 0;
};

class ModelDraftTest : public SourceTest {
 protected:
  void SetUp() override {
    const auto load = [this](const std::string&) -> Result<std::unique_ptr<graph::Model>> {
      auto made = std::make_unique<Drafter>();
      drafter = made.get();
      return std::unique_ptr<graph::Model>(std::move(made));
    };
    const auto refuse = [](const std::string&) -> Result<std::unique_ptr<graph::DraftHead>> {
      return not_found("no head");
    };
    start(make_draft_source(*parse_draft_spec("model:toy"), {target, load, refuse}));
  }
  void keep(int to, const std::vector<int32_t>& accepted = {}) { keep_row(to, accepted, {}); }
  void read_prompt(int len, int piece) {
    for (int i = 0; i < len; ++i) known.push_back(i * 7 % 50);
    for (int to = piece; computed < len; to += piece) keep(std::min(to, len));
  }
  Drafter* drafter = nullptr;
};

TEST_F(ModelDraftTest, DraftsAtOnceAfterAPromptOfAnyLengthInAnyPieces) {
  for (int len : {1, 63, 64, 65, 200, 1300})
    for (int piece : {1, 7, 64, 512}) {
      restart();
      read_prompt(len, piece);
      known.push_back(90);
      EXPECT_THAT(draft(2), ElementsAre(91, 92)) << len << " by " << piece;
      std::vector<int32_t> held = known;
      held.push_back(91);
      EXPECT_EQ(drafter->tokens[0], held) << len << " by " << piece;
    }
  EXPECT_LE(drafter->longest_step, 512);
}

TEST_F(ModelDraftTest, DraftsAtOnceAfterRoundsWithoutDrafts) {
  read_prompt(10, 10);
  for (int i = 0; i < 300; ++i) {
    known.push_back(i % 90);
    keep(static_cast<int>(known.size()));
  }
  known.push_back(50);
  EXPECT_THAT(draft(1), ElementsAre(51));
  EXPECT_EQ(drafter->tokens[0], known);
}

TEST_F(ModelDraftTest, GoesBackToWhatWasKept) {
  read_prompt(5, 5);
  known.push_back(10);
  EXPECT_THAT(draft(3), ElementsAre(11, 12, 13));
  keep(7, {11});  // one of three, then another token
  known.insert(known.end(), {11, 40});
  EXPECT_THAT(draft(3), ElementsAre(41, 42, 43));
  keep(11, {41, 42, 43});  // all, then the bonus
  known.insert(known.end(), {41, 42, 43, 44});
  EXPECT_THAT(draft(1), ElementsAre(45));
  EXPECT_EQ(drafter->tokens[0], known);
  keep(12);  // none
  known.push_back(70);
  EXPECT_THAT(draft(2), ElementsAre(71, 72));
}

// A row that came with tokens computed before, as from a stored prefix.
TEST_F(ModelDraftTest, CatchesUpInPieces) {
  known.assign(1000, 3);
  computed = 999;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(draft(1).size(), i < 2 ? 0u : 1u) << i;
    keep(static_cast<int>(known.size()));
    known.push_back(4);
  }
  EXPECT_LE(drafter->longest_step, 512);
}

}  // namespace
}  // namespace tenon::decode

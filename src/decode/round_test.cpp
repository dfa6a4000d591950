// The round, with a draft source that is told what to propose: whatever it proposes, the tokens are
// those of plain decoding, and the caches hold exactly what was kept.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "decode/decode.h"
#include "decode/toy_target.h"

namespace tenon::decode {
namespace {

constexpr int kVocab = 13;

// After token t at position p comes (5 t + p) mod V: history matters through the position.
class ToyModel final : public ToyTarget {
 public:
  ToyModel() : ToyTarget(kVocab) {}
  mx::array hidden(const mx::array& ids, ops::Rows rows, graph::Taps*) override {
    append(caches(), rows);
    std::vector<float> next;
    for (const ops::RowSlice& row : rows)
      for (int i = 0; i < row.len; ++i)
        next.push_back(
            static_cast<float>((5 * ids.data<int32_t>()[row.start + i] + row.offset + i) % kVocab));
    return mx::array(next.begin(), {static_cast<int>(next.size()), 1});
  }
};

// Proposes what `script` says of a row; remembers what it was told.
class Scripted final : public DraftSource {
 public:
  using Script = std::function<std::vector<int32_t>(const DraftRow&)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}
  const char* name() const override { return "scripted"; }
  int default_depth() const override { return 4; }
  int max_depth() const override { return 8; }
  std::vector<int> taps() const override { return wanted_taps; }
  std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) override {
    std::vector<std::vector<int32_t>> all;
    for (const DraftRow& row : rows) {
      steps.push_back(row.step);
      all.push_back(script_(row));
    }
    return all;
  }
  void keep(std::span<const KeptRow> rows, const graph::Taps&) override {
    if (fails_to_keep) throw std::runtime_error("[keep] told to fail");
    for (const KeptRow& row : rows)
      for (int p = row.from; p < row.to; ++p) kept[row.slot].push_back(row.token(p));
  }
  std::vector<int> wanted_taps;
  std::vector<uint32_t> steps;
  std::map<int, std::vector<int32_t>> kept;
  bool fails_to_keep = false;

 private:
  Script script_;
};

struct Talk {
  std::vector<int32_t> known;
  std::vector<float> logprobs;
  int rounds = 0, drafted = 0, accepted = 0;
  std::string draft_error;
};

// Prompt {1, 2, 3}, then `num` tokens, with `depth` drafts a round.
Talk talk(const SamplingParams& params, DraftSource* source, int depth, int num) {
  ToyModel model;
  model.caches().open(0);
  StepSampler sampler(params, 0);
  Talk out{{1, 2, 3}, {}};
  int computed = 0;
  for (int drawn = 0; drawn < num;) {
    const int count = static_cast<int>(out.known.size()) - computed;
    RowWork work{.slot = 0, .known = out.known, .computed = computed, .count = count};
    work.num_drafts = std::min(depth, num - drawn - 1);
    work.step = drawn;
    work.sampler = &sampler;
    work.drafts_open = source != nullptr;
    const RoundOutcome round = run_round(model, source, std::span(&work, 1));
    const RowOutcome& row = round.rows[0];
    EXPECT_FALSE(row.error);
    EXPECT_EQ(model.caches().len(0), row.computed);
    ++out.rounds;
    out.drafted += row.num_drafted;
    out.accepted += row.num_accepted;
    out.draft_error += round.draft_error;
    for (const Drawn& d : row.drawn) {
      out.known.push_back(d.id);
      out.logprobs.push_back(d.logprob);
    }
    drawn += static_cast<int>(row.drawn.size());
    EXPECT_EQ(row.computed + 1, static_cast<int>(out.known.size()));
    computed = row.computed;
  }
  return out;
}

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}
SamplingParams sampled(uint64_t seed) {
  SamplingParams p;
  p.temperature = 0.8;
  p.top_k = 9;
  p.top_p = 0.95;
  p.seed = seed;
  return p;
}
SamplingParams penalized() {
  SamplingParams p = sampled(7);
  p.repetition_penalty = 1.3;
  p.frequency_penalty = 0.4;
  p.logit_bias = {{5, 2.0f}};
  return p;
}

// Right: what plain decoding draws next. Otherwise one of the drafts is spoilt.
Scripted::Script spoilt(const std::vector<int32_t>& truth, std::function<int()> where) {
  return [&truth, where](const DraftRow& row) {
    const size_t at = row.known.size();
    const size_t end = std::min(truth.size(), at + static_cast<size_t>(row.num_drafts));
    std::vector<int32_t> drafts(truth.begin() + static_cast<int>(at),
                                truth.begin() + static_cast<int>(end));
    const int bad = where();
    if (bad >= 0 && bad < static_cast<int>(drafts.size())) drafts[bad] = (drafts[bad] + 1) % kVocab;
    return drafts;
  };
}

TEST(Round, AnyDraftsGiveThePlainTokens) {
  constexpr int kNum = 60;
  for (const SamplingParams& params : {greedy(), sampled(1), sampled(2), penalized()}) {
    const Talk plain = talk(params, nullptr, 0, kNum);
    ASSERT_EQ(plain.known.size(), 3u + kNum);
    std::mt19937 random(3);
    for (int depth = 1; depth <= 8; ++depth) {
      Scripted right(spoilt(plain.known, [] { return -1; }));
      Scripted wrong(spoilt(plain.known, [] { return 0; }));
      Scripted mixed(spoilt(plain.known, [&] { return static_cast<int>(random() % 10) - 1; }));
      Scripted few([&](const DraftRow& row) {
        auto drafts = spoilt(plain.known, [] { return -1; })(row);
        drafts.resize(random() % (drafts.size() + 1));
        return drafts;
      });
      for (Scripted* source : {&right, &wrong, &mixed, &few}) {
        const Talk got = talk(params, source, depth, kNum);
        EXPECT_EQ(got.known, plain.known) << depth;
        EXPECT_EQ(got.logprobs, plain.logprobs) << depth;
        // What the source was told is exactly what is in the caches.
        const std::vector<int32_t> computed(plain.known.begin(), plain.known.end() - 1);
        EXPECT_EQ(source->kept[0], computed);
      }
      const Talk all = talk(params, &right, depth, kNum);
      EXPECT_EQ(all.accepted, all.drafted);
      EXPECT_EQ(all.rounds, 1 + (kNum - 1 + depth) / (depth + 1));
      EXPECT_EQ(talk(params, &wrong, depth, kNum).accepted, 0);
    }
  }
  EXPECT_NE(talk(sampled(1), nullptr, 0, kNum).known, talk(sampled(2), nullptr, 0, kNum).known);
}

// The exact law of two tokens, against 4,000 seeds, with drafts that are right now and then.
TEST(Round, TwoTokensFollowTheirLaw) {
  constexpr int kSeeds = 4000;
  SamplingParams params;
  params.temperature = 0.8;
  params.top_p = 0.9;
  // What comes after token t at position p: softmax(-|id - x| / 0.8) over the smallest set that
  // holds 0.9 of softmax(-|id - x|), as ToyModel has it.
  const auto law = [](int token, int position) {
    const int x = (5 * token + position) % kVocab;
    std::vector<double> p(kVocab);
    double total = 0;
    for (int id = 0; id < kVocab; ++id) total += p[id] = std::exp(-std::abs(id - x));
    std::vector<int> order(kVocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
    std::vector<double> q(kVocab, 0.0);
    double sum = 0, kept = 0;
    for (int id : order) {
      if (sum >= 0.9) break;
      sum += p[id] / total;
      kept += q[id] = std::exp(-std::abs(id - x) / 0.8);
    }
    for (double& weight : q) weight /= kept;
    return q;
  };
  std::map<std::pair<int, int>, int> counts;
  std::mt19937 random(11);
  int accepted = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    params.seed = static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15ull;
    Scripted source([&](const DraftRow& row) {
      const int x = (5 * row.known.back() + static_cast<int>(row.known.size()) - 1) % kVocab;
      return std::vector<int32_t>{(x + static_cast<int>(random() % 3)) % kVocab};
    });
    // The first token is drawn in prefill; it and the next two, of which one is drafted.
    const Talk got = talk(params, &source, 1, 3);
    accepted += got.accepted;
    if (got.known[3] == 4) ++counts[{got.known[4], got.known[5]}];
  }
  EXPECT_GT(accepted, kSeeds / 10);
  int total = 0;
  for (const auto& [pair, n] : counts) total += n;
  ASSERT_GT(total, 500);
  double chi_square = 0;
  int cells = 0;
  const auto first = law(4, 3);
  for (int a = 0; a < kVocab; ++a) {
    const auto second = law(a, 4);
    for (int b = 0; b < kVocab; ++b) {
      const double expected = total * first[a] * second[b];
      const auto found = counts.find({a, b});
      const int observed = found == counts.end() ? 0 : found->second;
      if (expected == 0) {
        EXPECT_EQ(observed, 0) << a << " " << b;
      } else if (expected >= 5) {
        chi_square += (observed - expected) * (observed - expected) / expected;
        ++cells;
      }
    }
  }
  ASSERT_GT(cells, 8);
  EXPECT_LT(chi_square, cells + 4 * std::sqrt(2.0 * cells));  // four deviations
}

// A draft's step is the index of the token it stands for, whatever was accepted before.
TEST(Round, StepsOfDraftsFollowTheTokens) {
  const Talk plain = talk(greedy(), nullptr, 0, 12);
  Scripted source(spoilt(plain.known, [] { return 2; }));
  talk(greedy(), &source, 4, 12);
  EXPECT_THAT(source.steps, ::testing::ElementsAre(1, 4, 7, 10));
}

TEST(Round, MoreDraftsThanAskedForAreCut) {
  const Talk plain = talk(greedy(), nullptr, 0, 20);
  Scripted source([&](const DraftRow& row) {
    DraftRow more = row;
    more.num_drafts += 3;
    return spoilt(plain.known, [] { return -1; })(more);
  });
  EXPECT_EQ(talk(greedy(), &source, 2, 20).known, plain.known);
}

// A source that fails costs its drafts, not the request.
TEST(Round, AFailingSourceIsReported) {
  const Talk plain = talk(greedy(), nullptr, 0, 20);
  Scripted thrower([](const DraftRow&) -> std::vector<int32_t> {
    throw std::runtime_error("[draft] told to fail");
  });
  const Talk thrown = talk(greedy(), &thrower, 2, 20);
  EXPECT_EQ(thrown.known, plain.known);
  EXPECT_THAT(thrown.draft_error, ::testing::HasSubstr("scripted: [draft] told to fail"));
  Scripted forgetful(spoilt(plain.known, [] { return 1; }));
  forgetful.fails_to_keep = true;
  const Talk kept = talk(greedy(), &forgetful, 2, 20);
  EXPECT_EQ(kept.known, plain.known);
  EXPECT_THAT(kept.draft_error, ::testing::HasSubstr("told to fail"));
}

TEST(Round, AMissingTapNamesItsLayer) {
  const Talk plain = talk(greedy(), nullptr, 0, 4);
  Scripted source(spoilt(plain.known, [] { return -1; }));
  source.wanted_taps = {17};
  try {
    talk(greedy(), &source, 2, 4);
    ADD_FAILURE() << "nothing said";
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("layer 17"));
  }
}

TEST(Round, RowsBehindDrawNothing) {
  ToyModel model;
  model.caches().open(0);
  StepSampler sampler({}, -1);
  const std::vector<int32_t> known{1, 2, 3, 4};
  RowWork work{.slot = 0, .known = known, .computed = 0, .count = 3, .sampler = &sampler};
  const auto out = run_round(model, nullptr, std::span(&work, 1)).rows;
  EXPECT_TRUE(out[0].drawn.empty());
  EXPECT_EQ(out[0].computed, 3);
}

TEST(Round, GuessesAreComparedAndNotVerified) {
  const Talk plain = talk(greedy(), nullptr, 0, 6);
  ToyModel model;
  model.caches().open(0);
  StepSampler sampler(greedy(), -1);
  Scripted source(spoilt(plain.known, [] { return -1; }));
  RowWork work{.slot = 0, .known = plain.known, .computed = 0, .count = 5};
  work.sampler = &sampler;
  run_round(model, nullptr, std::span(&work, 1));
  const std::vector<int32_t> known(plain.known.begin(), plain.known.begin() + 6);
  RowWork next{.slot = 0, .known = known, .computed = 5, .count = 1, .guesses = true, .step = 3};
  next.sampler = &sampler;
  next.drafts_open = true;
  const auto out = run_round(model, &source, std::span(&next, 1)).rows[0];
  EXPECT_EQ(out.guessed, std::optional<bool>(true));
  EXPECT_EQ(out.num_drafted, 0);
  EXPECT_EQ(out.computed, 6);
}

}  // namespace
}  // namespace tenon::decode

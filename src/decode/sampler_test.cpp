// The step sampler against its definition: order, ties, edges, and the draw's exact law.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "decode/decode.h"
#include "decode/philox.h"

namespace tenon::decode {
namespace {

Drawn draw(const SamplingParams& p, const std::vector<float>& logits,
           std::vector<int32_t> history = {}, uint32_t step = 0, int top = 0) {
  StepSampler sampler(p, top);
  auto drawn = sampler.draw(logits, history, step);
  EXPECT_TRUE(drawn.ok()) << drawn.error().message;
  return drawn.ok() ? *drawn : Drawn{};
}

// Known answers of the reference distribution (Random123 kat_vectors, philox4x32 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(
      philox4x32({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
      (PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Sampler, GreedyTakesTheLowestIdOnTies) {
  SamplingParams p;
  p.temperature = 0;
  EXPECT_EQ(draw(p, {1, 3, 3, 2}).id, 1);
}

// Padding of a head never counts: not as a draw, not in a sum, not when it holds NaN.
TEST(Sampler, PaddingIsNotThere) {
  const std::vector<float> words{0.3f, 1.2f, -0.5f, 0.9f};
  std::vector<float> padded = words;
  padded.insert(padded.end(), {5.0f, 7.0f, NAN});
  for (double temperature : {0.0, 1.3})
    for (uint32_t step = 0; step < 50; ++step) {
      SamplingParams p;
      p.temperature = temperature;
      StepSampler plain(p, 2), limited(p, 2, 4);
      const auto want = plain.draw(words, {}, step), got = limited.draw(padded, {}, step);
      ASSERT_TRUE(want.ok() && got.ok());
      EXPECT_EQ(got->id, want->id);
      EXPECT_EQ(got->logprob, want->logprob);
      EXPECT_EQ(got->top[1].id, want->top[1].id);
    }
}

TEST(Sampler, NanAndNothingFiniteAreErrors) {
  StepSampler sampler({}, -1);
  for (const std::vector<float>& bad :
       {std::vector<float>{0, NAN, 1}, {NAN, NAN}, {-INFINITY, -INFINITY}, {0, INFINITY}}) {
    const auto drawn = sampler.draw(bad, {}, 3);
    ASSERT_FALSE(drawn.ok());
    EXPECT_NE(drawn.error().message.find("step 3"), std::string::npos);
  }
}

TEST(Sampler, LogprobsSumToOneAndIgnoreTemperature) {
  SamplingParams hot;
  hot.temperature = 2;
  const std::vector<float> logits{1, 2, 3, -INFINITY, 0};
  const Drawn a = draw(hot, logits, {}, 0, 5);
  SamplingParams cold;
  cold.temperature = 0;
  const Drawn b = draw(cold, logits, {}, 0, 5);
  double sum = 0;
  for (size_t i = 0; i < a.top.size(); ++i) {
    EXPECT_EQ(a.top[i].id, b.top[i].id);
    EXPECT_EQ(a.top[i].logprob, b.top[i].logprob);
    sum += std::exp(a.top[i].logprob);
  }
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_EQ(a.top.front().id, 2);
}

TEST(Sampler, PenaltiesFollowTheirContexts) {
  SamplingParams p;
  p.temperature = 0;
  p.repetition_penalty = 4;
  p.repetition_context = 1;
  EXPECT_EQ(draw(p, {2.0f, 1.9f}, {0, 1}).id, 0);  // only the last token counts
  EXPECT_EQ(draw(p, {2.0f, 1.9f}, {1, 0}).id, 1);
  SamplingParams frequency;
  frequency.temperature = 0;
  frequency.frequency_penalty = 0.5;
  EXPECT_EQ(draw(frequency, {2.0f, 1.2f}, {0}).id, 0);
  EXPECT_EQ(draw(frequency, {2.0f, 1.2f}, {0, 0}).id, 1);
  SamplingParams presence;
  presence.temperature = 0;
  presence.presence_penalty = 0.9;
  EXPECT_EQ(draw(presence, {2.0f, 1.2f}, {0, 0}).id, 1);
}

TEST(Sampler, LogitBiasComesFirstAndIdsOutsideAreIgnored) {
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{1, 100.0f}, {-1, 100.0f}, {99, 100.0f}};
  EXPECT_EQ(draw(p, {5, 1, 2}).id, 1);
}

// How often each id comes out over many seeds.
std::map<int32_t, int> histogram(SamplingParams p, const std::vector<float>& logits, int draws) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    p.seed = static_cast<uint64_t>(i);
    ++counts[draw(p, logits, {}, 7, -1).id];
  }
  return counts;
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto ids = [&](const SamplingParams& p) {
    std::vector<int32_t> seen;
    for (const auto& [id, n] : histogram(p, logits, 600)) seen.push_back(id);
    return seen;
  };
  SamplingParams p;
  EXPECT_EQ(ids(p), (std::vector<int32_t>{0, 1, 2, 3}));
  p.top_p = 0.79;
  EXPECT_EQ(ids(p), (std::vector<int32_t>{0, 1}));
  p = {};
  p.min_p = 0.29;
  EXPECT_EQ(ids(p), (std::vector<int32_t>{0, 1, 2}));
  p = {};
  p.top_k = 1;
  EXPECT_EQ(ids(p), (std::vector<int32_t>{0}));
  p = {};
  p.xtc_probability = 1;
  p.xtc_threshold = 0.1;
  EXPECT_EQ(ids(p), (std::vector<int32_t>{2, 3}));  // of 0, 1, 2 above the threshold only 2 stays
  p.temperature = 0.001;
  EXPECT_EQ(ids(p),
            (std::vector<int32_t>{2}));  // and an excluded best does not come back when cold
}

// Pearson's chi-square of many draws against the exact distribution.
TEST(Sampler, DrawsFollowTheDistribution) {
  std::vector<float> logits;
  for (int i = 0; i < 10; ++i) logits.push_back(static_cast<float>(std::sin(3.0 * i)));
  for (const double temperature : {0.5, 1.0, 1.5}) {
    SamplingParams p;
    p.temperature = temperature;
    constexpr int kDraws = 20000;
    const auto counts = histogram(p, logits, kDraws);
    double total = 0, chi2 = 0;
    for (float l : logits) total += std::exp(l / temperature);
    for (int i = 0; i < 10; ++i) {
      const double want = kDraws * std::exp(logits[i] / temperature) / total;
      const double got = counts.contains(i) ? counts.at(i) : 0;
      chi2 += (got - want) * (got - want) / want;
    }
    EXPECT_LT(chi2, 27.88) << "temperature " << temperature;  // 9 degrees of freedom, p = 0.001
  }
}

TEST(Sampler, DrawDependsOnSeedStepAndChoiceOnly) {
  const std::vector<float> logits(50, 0.0f);
  SamplingParams p;
  p.seed = 42;
  const int32_t first = draw(p, logits, {1, 2, 3}, 5).id;
  EXPECT_EQ(draw(p, logits, {}, 5).id, first);
  std::map<int32_t, int> by_step, by_choice;
  for (uint32_t i = 0; i < 20; ++i) {
    ++by_step[draw(p, logits, {}, i).id];
    SamplingParams other = p;
    other.choice = i;
    ++by_choice[draw(other, logits, {}, 5).id];
  }
  EXPECT_GT(by_step.size(), 8u);
  EXPECT_GT(by_choice.size(), 8u);
}

}  // namespace
}  // namespace tenon::decode

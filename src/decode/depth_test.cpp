// How many drafts pay: the choice is the best of all choices, and the record of a row is what was
// put to the test.
#include <gtest/gtest.h>

#include <cmath>

#include "decode/decode.h"

namespace tenon::decode {
namespace {

const StepCost flat({{1, 10}, {16, 10}});
const StepCost linear({{1, 10}, {2, 20}});
const StepCost half({{1, 10}, {2, 15}});

double rate_of(const StepCost& cost, int num_tokens, int num_draws, double draft_s,
               std::span<const DepthRow> rows, const std::vector<int>& depths) {
  double tokens = num_draws;
  int extra = 0, longest = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int j = 1; j <= depths[i]; ++j) tokens += std::pow(rows[i].rate, j);
    extra += depths[i];
    longest = std::max(longest, depths[i]);
  }
  return tokens / (cost.at(num_tokens + extra) + draft_s * longest);
}

TEST(StepCost, FollowsLinesThroughItsPoints) {
  EXPECT_DOUBLE_EQ(half.at(1), 10);
  EXPECT_DOUBLE_EQ(half.at(2), 15);
  EXPECT_DOUBLE_EQ(half.at(4), 25);
  const StepCost bent({{1, 10}, {4, 13}, {8, 33}});
  EXPECT_DOUBLE_EQ(bent.at(3), 12);
  EXPECT_DOUBLE_EQ(bent.at(6), 23);
  EXPECT_DOUBLE_EQ(bent.at(10), 43);
}

TEST(Depths, FreeVerificationTakesAllAndCostlyNone) {
  const DepthRow row{0.5, 6};
  EXPECT_EQ(choose_depths(flat, 1, 1, 0, std::span(&row, 1)), std::vector<int>{6});
  EXPECT_EQ(choose_depths(linear, 1, 1, 0, std::span(&row, 1)), std::vector<int>{0});
  const DepthRow sure{0.99, 6};
  EXPECT_EQ(choose_depths(linear, 1, 1, 0, std::span(&sure, 1)), std::vector<int>{0});
  EXPECT_EQ(choose_depths(half, 1, 1, 0, std::span(&sure, 1)), std::vector<int>{6});
  EXPECT_EQ(choose_depths(half, 1, 1, 100, std::span(&sure, 1)), std::vector<int>{0});
  const DepthRow never{0.9, 0};
  EXPECT_EQ(choose_depths(flat, 1, 1, 0, std::span(&never, 1)), std::vector<int>{0});
}

TEST(Depths, AreTheBestOfAllChoices) {
  const StepCost bent({{1, 10}, {2, 12}, {4, 13}, {5, 22}, {8, 24}, {16, 60}});
  for (double draft_s : {0.0, 0.7})
    for (double a : {0.1, 0.6, 0.95})
      for (double b : {0.3, 0.8}) {
        const DepthRow rows[] = {{a, 4}, {b, 4}};
        const auto got = choose_depths(bent, 2, 2, draft_s, rows);
        double best = 0;
        for (int i = 0; i <= 4; ++i)
          for (int j = 0; j <= 4; ++j)
            best = std::max(best, rate_of(bent, 2, 2, draft_s, rows, {i, j}));
        const double rate = rate_of(bent, 2, 2, draft_s, rows, got);
        EXPECT_GE(rate, (1 - 1e-12) * best) << a << " " << b;
      }
}

TEST(Acceptance, CountsWhatWasPutToTheTest) {
  Acceptance rows(0.5);
  for (int i = 0; i < 100; ++i) rows.observe(8, 8);
  EXPECT_GT(rows.rate(), 0.9);
  EXPECT_LT(rows.rate(), 0.95);  // never sure
  for (int i = 0; i < 100; ++i) rows.observe(8, 1);  // one right, one wrong, six untested
  EXPECT_NEAR(rows.rate(), 0.45, 0.06);
  for (int i = 0; i < 100; ++i) rows.observe(8, 0);
  EXPECT_LT(rows.rate(), 0.01);
  rows.observe(0, 0);
  EXPECT_LT(rows.rate(), 0.01);
}

}  // namespace
}  // namespace tenon::decode

// What perplexity and verify compute from rows of logits.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/agreement.h"
#include "cli/sample_text.h"
#include "cli/text_rows.h"

namespace tenon::cli {
namespace {

TEST(Windows, EveryTokenIsScoredOnceButTheFirst) {
  for (size_t tokens : {0u, 1u, 2u, 5u, 16u, 17u, 40u}) {
    for (size_t stride : {1u, 3u, 8u}) {
      std::vector<int> scored(tokens);
      for (const TextWindow& w : cut_windows(tokens, 8, stride)) {
        EXPECT_LT(w.begin, w.first);
        EXPECT_LE(w.end - w.begin, 8u);
        for (size_t i = w.first; i < w.end; ++i) ++scored[i];
      }
      for (size_t i = 0; i < tokens; ++i) {
        const bool unseen = stride == 8 ? i % 8 == 0 : i == 0;
        EXPECT_EQ(scored[i], unseen ? 0 : 1) << tokens << " tokens, stride " << stride << ", " << i;
      }
    }
  }
}

TEST(Windows, OverlapGivesAtLeastTheRestAsContext) {
  const auto windows = cut_windows(100, 16, 4);
  for (size_t i = 1; i < windows.size(); ++i) EXPECT_GE(windows[i].first - windows[i].begin, 12u);
  EXPECT_EQ(windows.back().end, 100u);
}

TEST(LogSumExp, LargeAndMissingValues) {
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{0, -INFINITY}), 0);
  EXPECT_TRUE(std::isnan(log_sum_exp(std::vector<float>{0, NAN})));
}

TEST(Divergence, IsZeroOfItselfAndKnownOtherwise) {
  const std::vector<float> even{0, 0}, skewed{std::log(3.0f), 0};
  EXPECT_EQ(divergence(skewed, skewed), 0);
  // (1/2, 1/2) against (3/4, 1/4): 1/2 log(2/3) + 1/2 log 2.
  EXPECT_NEAR(divergence(even, skewed), 0.5 * std::log(4.0 / 3), 1e-7);
  EXPECT_NEAR(divergence(std::vector<float>{5, 5}, skewed), 0.5 * std::log(4.0 / 3), 1e-7);
  EXPECT_EQ(divergence(std::vector<float>{0, -INFINITY}, std::vector<float>{7, -INFINITY}), 0);
}

TEST(Agreement, CountsAndRefuses) {
  Agreement agreement;
  const std::vector<float> a{1, 2, 3}, b{3, 2, 1};
  EXPECT_TRUE(agreement.add(0, a, a).ok());
  EXPECT_TRUE(agreement.add(1, a, b).ok());
  EXPECT_EQ(agreement.positions(), 2u);
  EXPECT_EQ(agreement.same_top(), 1u);
  EXPECT_EQ(agreement.largest_difference(), 2);
  EXPECT_EQ(agreement.quantile_kl(0), 0);
  EXPECT_EQ(agreement.quantile_kl(0.99), agreement.max_kl());
  EXPECT_DOUBLE_EQ(agreement.mean_kl() * 2, agreement.max_kl());
  EXPECT_FALSE(agreement.add(2, a, std::vector<float>{1, 2}).ok());
  EXPECT_FALSE(agreement.add(2, a, std::vector<float>{1, NAN, 2}).ok());
}

TEST(SampleText, IsLongEnoughForThePromise) { EXPECT_GT(kSampleText.size(), 8000u); }

}  // namespace
}  // namespace tenon::cli

// How many drafts pay. A draft is worth verifying while the token it may bring is worth more than
// the time it adds to the step at the rate that the step makes tokens anyway.
#include <algorithm>
#include <chrono>

#include "base/handover.h"
#include "base/log.h"
#include "decode/decode.h"

namespace tenon::decode {

namespace {

namespace mx = mlx::core;

constexpr int kWidths[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
constexpr int kRepeats = 3;
constexpr double kBudgetSeconds = 1.5;

double seconds_of_step(graph::Model& model, int num_tokens) {
  const auto started = std::chrono::steady_clock::now();
  const std::vector<int32_t> ids(static_cast<size_t>(num_tokens), 0);
  const ops::RowSlice row{0, 0, num_tokens, model.caches().len(0)};
  const mx::array flat(ids.begin(), {num_tokens}, mx::int32);
  std::vector<mx::array> results;
  results.push_back(model.logits(model.hidden(flat, std::span(&row, 1), nullptr)));
  for (mx::array& state : model.caches().state()) results.push_back(std::move(state));
  mx::eval(results);
  Handover::returned();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

// One draft that may be verified: the chance that it is reached and right.
struct Candidate {
  double gain;
  int row;
  int depth;
};

std::vector<Candidate> candidates(std::span<const DepthRow> rows) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    double gain = 1;
    for (int depth = 1; depth <= rows[i].max_depth; ++depth)
      all.push_back({gain *= rows[i].rate, static_cast<int>(i), depth});
  }
  // A row's drafts stay in order: their gains fall, and equal ones keep their places.
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
  return all;
}

}  // namespace

StepCost StepCost::measure(graph::Model& model) {
  std::vector<std::pair<int, double>> points;
  double spent = 0, least = 0;
  model.caches().open(0);
  spent += seconds_of_step(model, 1);  // the first touches every weight
  for (int width : kWidths) {
    double best = 0;
    for (int i = 0; i < kRepeats; ++i) {
      const double seconds = seconds_of_step(model, width);
      best = i == 0 ? seconds : std::min(best, seconds);
      spent += seconds;
      if (spent > kBudgetSeconds && points.size() > 2) break;
    }
    least = std::max(least, best);
    points.emplace_back(width, least);
    if (spent > kBudgetSeconds && points.size() > 2) break;
  }
  model.caches().close(0);
  std::string shown;
  for (const auto& [width, seconds] : points)
    shown += fmt::format(" {}: {:.1f}", width, seconds * 1000);
  log_debug("milliseconds of a step by its tokens:{}", shown);
  return StepCost(std::move(points));
}

double StepCost::at(int num_tokens) const {
  if (points_.empty()) return 1;
  if (points_.size() == 1) return points_[0].second * num_tokens / points_[0].first;
  size_t i = 1;
  while (i + 1 < points_.size() && points_[i].first < num_tokens) ++i;
  const auto [x0, y0] = points_[i - 1];
  const auto [x1, y1] = points_[i];
  return std::max(points_[0].second, y0 + (y1 - y0) * (num_tokens - x0) / (x1 - x0));
}

void Acceptance::observe(int num_drafted, int num_accepted) {
  // Drafts behind the first wrong one were never put to the test.
  const int tried = std::min(num_drafted, num_accepted + 1);
  for (int i = 0; i < tried; ++i) {
    right_ = kFade * right_ + (i < num_accepted ? 1 : 0);
    tried_ = kFade * tried_ + 1;
  }
}

std::vector<int> choose_depths(const StepCost& cost, int num_tokens, int num_draws, double draft_s,
                               std::span<const DepthRow> rows) {
  std::vector<int> best(rows.size(), 0);
  double rate = num_draws / cost.at(num_tokens);
  const std::vector<Candidate> all = candidates(rows);
  int longest = 0;
  for (const DepthRow& row : rows) longest = std::max(longest, row.max_depth);
  // Drafting takes as long as its longest chain: each length is a choice of its own.
  for (int limit = draft_s > 0 ? 1 : longest; limit <= longest; ++limit) {
    std::vector<int> depths(rows.size(), 0);
    double tokens = num_draws;
    int extra = 0;
    for (const Candidate& draft : all) {
      if (draft.depth > limit) continue;
      tokens += draft.gain;
      depths[draft.row] = draft.depth;
      const double seconds = cost.at(num_tokens + ++extra) + draft_s * limit;
      if (tokens / seconds <= rate) continue;
      rate = tokens / seconds;
      best = depths;
    }
  }
  return best;
}

}  // namespace tenon::decode

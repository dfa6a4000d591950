// How far one distribution over the vocabulary is from another, over many positions.
// Pure. Thread: one at a time.
#pragma once
#include <span>
#include <vector>

#include "base/result.h"

namespace tenon::cli {

// Kullback-Leibler divergence of softmax(other) from softmax(reference), in nats:
// sum p (log p - log q). Never below 0 by more than rounding. NaN when a row holds one.
double divergence(std::span<const float> reference, std::span<const float> other);

class Agreement {
 public:
  // Logits of one position. Errors: internal (rows of different widths, NaN), naming `position`.
  Status add(size_t position, std::span<const float> reference, std::span<const float> other);
  size_t positions() const { return kl_.size(); }
  size_t same_top() const { return same_top_; }  // positions whose likeliest token is the same
  double mean_kl() const;
  double max_kl() const;
  // The smallest KL that so large a share of positions does not pass; positions() > 0.
  double quantile_kl(double share) const;
  double largest_difference() const { return largest_difference_; }  // of two logits

 private:
  std::vector<double> kl_;
  size_t same_top_ = 0;
  double largest_difference_ = 0;
};

}  // namespace tenon::cli

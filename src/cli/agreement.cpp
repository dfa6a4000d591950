#include "cli/agreement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/text_rows.h"

namespace tenon::cli {

double divergence(std::span<const float> reference, std::span<const float> other) {
  const double p_scale = log_sum_exp(reference), q_scale = log_sum_exp(other);
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - p_scale;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - (other[i] - q_scale));
  }
  return std::isnan(p_scale) || std::isnan(q_scale) ? NAN : sum;
}

Status Agreement::add(size_t position, std::span<const float> reference,
                      std::span<const float> other) {
  if (reference.size() != other.size() || reference.empty())
    return internal("position {}: {} logits against {}", position, other.size(), reference.size());
  const double kl = divergence(reference, other);
  if (std::isnan(kl)) return internal("position {}: the logits hold NaN", position);
  kl_.push_back(std::max(kl, 0.0));
  const auto top = [](std::span<const float> row) {
    return std::max_element(row.begin(), row.end()) - row.begin();
  };
  same_top_ += top(reference) == top(other);
  for (size_t i = 0; i < reference.size(); ++i)
    largest_difference_ =
        std::max(largest_difference_, std::abs(static_cast<double>(reference[i]) - other[i]));
  return {};
}

double Agreement::mean_kl() const {
  return std::accumulate(kl_.begin(), kl_.end(), 0.0) / static_cast<double>(kl_.size());
}

double Agreement::max_kl() const { return *std::max_element(kl_.begin(), kl_.end()); }

double Agreement::quantile_kl(double share) const {
  std::vector<double> sorted = kl_;
  const size_t at =
      std::min(static_cast<size_t>(share * static_cast<double>(sorted.size())), sorted.size() - 1);
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at), sorted.end());
  return sorted[at];
}

}  // namespace tenon::cli

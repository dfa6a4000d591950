// The step sampler. Order: logit_bias -> repetition -> presence -> frequency
// -> log-softmax (log-probabilities are reported from here) -> top-p -> min-p -> XTC -> top-k ->
// temperature -> draw. Exponentials are our kernels' float32, the same bits on every machine; every
// sum of them runs in float64 in token-id order, so no result depends on a sort's handling of equal
// keys; ties go to the lower id.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "decode/decode.h"
#include "decode/philox.h"

namespace tenon::decode {

namespace {

constexpr size_t kSortedHead = 64;

std::span<const int32_t> last(std::span<const int32_t> history, int n) {
  return n < 0 || history.size() <= static_cast<size_t>(n) ? history : history.last(n);
}

void penalize(std::vector<float>& logits, std::span<const int32_t> history,
              const SamplingParams& p) {
  const auto inside = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < logits.size();
  };
  const auto counts = [&](int context) {
    std::unordered_map<int32_t, int> n;
    for (int32_t id : last(history, context))
      if (inside(id)) ++n[id];
    return n;
  };
  for (const auto& [id, bias] : p.logit_bias)
    if (inside(id)) logits[id] += bias;
  if (p.repetition_penalty != 1.0)
    for (const auto& [id, n] : counts(p.repetition_context)) {
      const float penalty = static_cast<float>(p.repetition_penalty);
      logits[id] = logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty;
    }
  if (p.presence_penalty != 0)
    for (const auto& [id, n] : counts(p.presence_context))
      logits[id] -= static_cast<float>(p.presence_penalty);
  if (p.frequency_penalty != 0)
    for (const auto& [id, n] : counts(p.frequency_context))
      logits[id] -= static_cast<float>(p.frequency_penalty * n);
}

bool has_penalties(const SamplingParams& p) {
  return !p.logit_bias.empty() || p.repetition_penalty != 1.0 || p.presence_penalty != 0 ||
         p.frequency_penalty != 0;
}

// The id of the largest value, the lowest on ties; -1 when a NaN is anywhere or none is finite.
int32_t best_id(const std::vector<float>& row) {
  const int32_t best = ops::argmax(row);
  return best >= 0 && std::isfinite(row[best]) ? best : -1;
}

// In place: logits to log-probabilities. `work`: memory.
void log_softmax(std::vector<float>& row, float max, std::vector<float>& work) {
  work.resize(row.size());
  ops::exps(row, max, 1.0f, work.data());
  double sum = 0;
  for (float e : work) sum += e;
  const double log_sum = max + std::log(sum);
  for (float& x : row) x = static_cast<float>(x - log_sum);
}

// Best first, lower id first on ties.
struct ByLogprob {
  const std::vector<float>& logprobs;
  bool operator()(int32_t a, int32_t b) const {
    return logprobs[a] != logprobs[b] ? logprobs[a] > logprobs[b] : a < b;
  }
};

std::vector<TokenLogprob> top_of(const std::vector<float>& logprobs, int n) {
  std::vector<int32_t> ids(logprobs.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto end = ids.begin() + std::min<size_t>(n, ids.size());
  std::partial_sort(ids.begin(), end, ids.end(), ByLogprob{logprobs});
  std::vector<TokenLogprob> top;
  for (auto it = ids.begin(); it != end; ++it) top.push_back({*it, logprobs[*it]});
  return top;
}

// The smallest set of best tokens whose probability reaches top_p. It is mostly a few of very many,
// so only as long a head as it takes is sorted.
void keep_top_p(std::vector<int32_t>& ids, const std::vector<float>& logprobs, double top_p) {
  const ByLogprob before{logprobs};
  double sum = 0;
  size_t kept = 0;
  for (size_t sorted = 0; kept < ids.size() && sum < top_p;) {
    const size_t more = std::min(ids.size(), std::max(kSortedHead, 8 * sorted));
    std::nth_element(ids.begin() + sorted, ids.begin() + more - 1, ids.end(), before);
    std::sort(ids.begin() + sorted, ids.begin() + more, before);
    for (sorted = more; kept < sorted && sum < top_p; ++kept)
      sum += std::exp(static_cast<double>(logprobs[ids[kept]]));
  }
  ids.resize(std::max<size_t>(kept, 1));
}

// Tokens at least min_p times as likely as the best.
void keep_min_p(std::vector<int32_t>& ids, const std::vector<float>& logprobs, int32_t best,
                double min_p) {
  const double floor = static_cast<double>(logprobs[best]) + std::log(min_p);
  std::erase_if(ids, [&](int32_t id) { return logprobs[id] < floor; });
}

// Exclude top choices: of the tokens above the threshold, only the least likely stays.
void drop_top_choices(std::vector<int32_t>& ids, const std::vector<float>& logprobs,
                      double threshold) {
  const double floor = std::log(threshold);
  int32_t least = -1;
  int num_above = 0;
  for (int32_t id : ids)
    if (logprobs[id] > floor) {
      ++num_above;
      if (least < 0 || ByLogprob{logprobs}(least, id)) least = id;
    }
  if (num_above < 2) return;
  std::erase_if(ids, [&](int32_t id) { return logprobs[id] > floor && id != least; });
}

void keep_top_k(std::vector<int32_t>& ids, const std::vector<float>& logprobs, int top_k) {
  if (ids.size() <= static_cast<size_t>(top_k)) return;
  std::partial_sort(ids.begin(), ids.begin() + top_k, ids.end(), ByLogprob{logprobs});
  ids.resize(top_k);
}

// The first id, in id order, whose cumulative probability exceeds u * total. Weights are relative
// to the best of the ids (a filter may have dropped the row's best), so that at least one of them
// is 1. `weights`: memory.
int32_t pick(std::vector<int32_t>& ids, const std::vector<float>& logprobs, double temperature,
             double u, std::vector<float>& weights) {
  const int32_t best = *std::min_element(ids.begin(), ids.end(), ByLogprob{logprobs});
  if (!std::is_sorted(ids.begin(), ids.end())) std::sort(ids.begin(), ids.end());
  weights.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) weights[i] = logprobs[ids[i]];
  ops::exps(weights, logprobs[best], static_cast<float>(temperature), weights.data());
  double total = 0;
  for (float weight : weights) total += weight;
  double cdf = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    cdf += weights[i];
    if (cdf > u * total) return ids[i];
  }
  return best;  // u * total rounded up to the whole sum
}

}  // namespace

StepSampler::StepSampler(SamplingParams params, int top_logprobs, int num_words)
    : params_(std::move(params)),
      top_logprobs_(top_logprobs),
      num_words_(num_words > 0 ? static_cast<size_t>(num_words) : SIZE_MAX) {}

bool StepSampler::is_argmax() const { return params_.temperature == 0 && !has_penalties(params_); }

Result<Drawn> StepSampler::draw(std::span<const float> logits, std::span<const int32_t> history,
                                uint32_t step) {
  return draw(logits, history, step, top_logprobs_);
}

int32_t StepSampler::guess(std::span<const float> logits, std::span<const int32_t> history,
                           uint32_t step) {
  const auto drawn = draw(logits, history, step, -1);
  return drawn.ok() ? drawn->id : -1;
}

Result<Drawn> StepSampler::draw(std::span<const float> logits, std::span<const int32_t> history,
                                uint32_t step, int top_logprobs) {
  logits = logits.first(std::min(logits.size(), num_words_));
  work_.assign(logits.begin(), logits.end());
  if (has_penalties(params_)) penalize(work_, history, params_);
  const int32_t best = best_id(work_);
  if (best < 0) return internal("the model's logits hold NaN or no finite value at step {}", step);
  const bool greedy = params_.temperature == 0;
  Drawn drawn;
  drawn.id = best;
  if (greedy && top_logprobs < 0) return drawn;

  log_softmax(work_, work_[best], weights_);
  if (!greedy) {
    candidates_.resize(work_.size());
    for (size_t i = 0; i < work_.size(); ++i) candidates_[i] = static_cast<int32_t>(i);
    std::erase_if(candidates_, [&](int32_t id) { return work_[id] == -INFINITY; });
    const SamplingParams& p = params_;
    if (p.top_p < 1) keep_top_p(candidates_, work_, p.top_p);
    if (p.min_p > 0) keep_min_p(candidates_, work_, best, p.min_p);
    if (p.xtc_probability > 0 &&
        uniform(p.seed, step, p.choice, DrawPurpose::xtc) < p.xtc_probability)
      drop_top_choices(candidates_, work_, p.xtc_threshold);
    if (p.top_k > 0) keep_top_k(candidates_, work_, p.top_k);
    drawn.id = pick(candidates_, work_, p.temperature,
                    uniform(p.seed, step, p.choice, DrawPurpose::token), weights_);
  }
  if (top_logprobs >= 0) {
    drawn.logprob = work_[drawn.id];
    drawn.top = top_of(work_, top_logprobs);
  }
  return drawn;
}

}  // namespace tenon::decode

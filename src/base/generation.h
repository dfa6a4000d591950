// What a request asks of generation and what comes back: plain data shared by decode, engine, api
// and cli. Thread: immutable after construction.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

// A smaller penalty would push a float32 logit past its range.
constexpr double kRepetitionPenaltyMin = 0.01;

// Defaults are the built-in ones; precedence (request > flag > generation_config.json > built-in)
// is applied by the caller before this reaches the engine.
struct SamplingParams {
  double temperature = 1.0;  // 0 = argmax; [0, 5]
  double top_p = 1.0;        // (0, 1]; 1 = off
  int top_k = 0;             // 0 or -1 = off
  double min_p = 0.0;        // [0, 1]; 0 = off
  double xtc_probability = 0.0;
  double xtc_threshold = 0.1;
  double repetition_penalty = 1.0;  // 1 = off
  int repetition_context = 64;      // tokens looked back over, prompt included
  double presence_penalty = 0.0;
  int presence_context = 64;
  double frequency_penalty = 0.0;
  int frequency_context = 64;
  std::vector<std::pair<int32_t, float>> logit_bias;  // id, added to the logit
  uint64_t seed = 0;    // always set; the caller draws 64 random bits when the request has none
  uint32_t choice = 0;  // index of n
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

enum class FinishReason { stop, length, cancelled, error };
const char* finish_reason_name(FinishReason reason);

}  // namespace tenon

// The top-level fields of /v1/chat/completions and /v1/completions: one table for both, so a field
// means the same on either. Policy for unknown and unsupported fields: api.h. Thread: any.
//
// Ranges: sampling settings as in base/sampling.h; logit_bias [-100, 100] by token id; seed any
// 64-bit integer (a negative one is read as its two's complement); stop a string or at most 16,
// none empty, 1 KiB each; max_tokens and max_completion_tokens >= 1, equal if both are given,
// clipped to the window; n 1 to 16.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/api.h"

namespace tenon::api {

enum class Surface { chat, completions };

struct GenerateOptions {
  SamplingParams sampling;  // the model's defaults under what the request says; seed always set
  std::vector<std::string> stops;
  std::optional<int64_t> max_tokens;
  int n = 1;
  int top_logprobs = -1;  // -1: none wanted
  bool stream = false;
  bool include_usage = false;
  bool include_progress = false;
  bool ignore_end = false;
  int draft_depth = -1;  // -1: the server's way
  bool continue_final_message = false;
  std::optional<bool> add_generation_prompt;
  Json template_kwargs = Json::object();
  std::vector<std::string> ignored;  // accepted without effect
};

// Everything but model, messages and prompt.
Result<GenerateOptions> read_options(const Json& body, Surface surface, const engine::Model& model,
                                     const Limits& limits);

// 64 bits nobody can guess.
uint64_t random_bits();

}  // namespace tenon::api

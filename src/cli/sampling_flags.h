// The sampling settings by name: one table serves the flags (--top-p), the environment
// (TENON_TOP_P), the engine's defaults (JSON "top_p", as in the OpenAI request) and /params in
// chat.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/generation.h"
#include "base/json.h"
#include "cli/flags.h"

namespace tenon::cli {

class SamplingFlags {
 public:
  void declare(Flags& flags);
  // The given ones as JSON fields, for EngineOptions::sampling_overrides; null when none was given.
  Json overrides() const;
  // The given ones over `params`, for a verb that makes its own requests.
  void apply(SamplingParams& params) const;

 private:
  std::map<std::string, double> given_;  // by JSON name
};

// Sets one field from text ("top_p" or "top-p", "0.9"). Errors: invalid, naming the field.
Status set_sampling(SamplingParams& params, std::string_view name, std::string_view value);
// "temperature 0.7" and so on, one a line, all of them.
std::string show_sampling(const SamplingParams& params);

uint64_t random_seed();

}  // namespace tenon::cli

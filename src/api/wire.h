// The JSON of OpenAI's two completions routes: chunks of a stream and whole bodies. Pure: no
// threads, no I/O.
//
// Logprobs are of the distribution after logit_bias and penalties, before temperature and filters;
// a token that was masked out prints as -9999.0. text_offset of /v1/completions counts code points
// from the start of the completion. Progress chunks (stream_options.include_progress) have empty
// choices and a field "prompt_progress": {index, processed, total} in tokens.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api/choice.h"
#include "api/fields.h"
#include "base/json.h"

namespace tenon::api {

struct UsageTotals {
  int64_t prompt_tokens = 0;      // of each prompt once, however many choices it has
  int64_t completion_tokens = 0;  // of all choices
  int64_t cached_tokens = 0;      // part of prompt_tokens
};

class Wire {
 public:
  Wire(Surface surface, std::shared_ptr<const engine::Model> model, const GenerateOptions& options);

  // Streams: each is one SSE event, "data: {...}\n\n".
  std::string role(int index);  // "" for completions, which have no roles
  std::string delta(int index, const Piece& piece);
  std::string final(int index, const char* finish_reason);
  std::string progress(int index, const engine::Progress& progress);
  std::string usage(const UsageTotals& totals);  // "" unless asked for
  static std::string done() { return "data: [DONE]\n\n"; }
  static std::string error(const Error& error);

  // Whole replies.
  Json choice(int index, const Piece& all, const char* finish_reason) const;
  std::string body(Json choices, const UsageTotals& totals);

 private:
  std::string event(Json choices, Json usage, const char* extra_name = nullptr, Json extra = {});
  Json head(const char* object);
  Json logprobs(const std::vector<TokenEntry>& entries) const;
  Json chat_logprobs(const std::vector<TokenEntry>& entries) const;
  Json legacy_logprobs(const std::vector<TokenEntry>& entries) const;
  std::string token_text(int32_t id) const;

  const Surface surface_;
  const std::shared_ptr<const engine::Model> model_;
  const std::string id_;
  const int64_t created_;
  const std::string fingerprint_;
  const uint64_t seed_;
  const int top_logprobs_;
  const bool include_usage_;
  bool seed_sent_ = false;
};

}  // namespace tenon::api

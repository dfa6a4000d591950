// Runs one request and hands its text over as it comes: what chat and generate share.
// Thread: the caller's; it waits on the generation's channel.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace tenon::cli {

struct ReplyStats {
  engine::Usage usage;
  engine::DraftStats drafts;
  double first_token_ms = 0;  // from submit, as the reader saw it
  double total_ms = 0;
};

struct StreamedReply {
  std::string text;
  FinishReason reason = FinishReason::stop;
  bool interrupted = false;  // Ctrl-C, or the output is gone
  ReplyStats stats;
};

// False from `on_text` cancels (the output is gone); so does InterruptGuard's flag.
// Errors: the engine's, at submit or at the end of the reply.
Result<StreamedReply> stream_reply(engine::Engine& engine, const engine::Model& model,
                                   engine::GenerationRequest request,
                                   std::vector<std::string> stops,
                                   const std::function<bool(std::string_view)>& on_text);

// "31 prompt tokens at 512.0/s, 20 tokens at 13.2/s, first after 60 ms".
std::string describe(const ReplyStats& stats);

// The request's fields every text verb sets: ids, the model's sampling, a seed, the rest of the
// window.
engine::GenerationRequest make_request(const engine::Model& model, std::vector<int32_t> prompt_ids,
                                       const SamplingParams& sampling, int64_t max_tokens);

}  // namespace tenon::cli

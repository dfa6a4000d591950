// One terminal chat: the transcript, the settings, and what each line typed does.
// Thread: the main one, under an InterruptGuard. Text goes to stdout, complaints to stderr.
#pragma once
#include <optional>
#include <string>

#include "cli/stream_reply.h"
#include "cli/transcript.h"
#include "engine/engine.h"

namespace tenon::cli {

class ChatSession {
 public:
  ChatSession(engine::Engine& engine, std::shared_ptr<const engine::Model> model);
  void set_system(const std::string& text) { transcript_.set_system(text); }
  SamplingParams& sampling() { return sampling_; }
  void set_seed(std::optional<uint64_t> seed) { seed_ = seed; }
  void set_max_tokens(int64_t max_tokens) { max_tokens_ = max_tokens; }

  // A message or a /command. False: the user wants to leave.
  bool handle(const std::string& input);
  const Transcript& transcript() const { return transcript_; }

 private:
  bool command(const std::string& name, const std::string& rest);
  void reply_to(const std::string& text);
  Result<StreamedReply> generate();
  void params(const std::string& rest);
  Status set_param(const std::string& name, const std::string& value);

  engine::Engine& engine_;
  std::shared_ptr<const engine::Model> model_;
  Transcript transcript_;
  SamplingParams sampling_;
  std::optional<uint64_t> seed_;  // none: a new random one each turn
  int64_t max_tokens_ = 0;        // 0: the rest of the window
  std::optional<ReplyStats> last_;
};

}  // namespace tenon::cli

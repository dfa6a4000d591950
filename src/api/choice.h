// One choice of a reply: the engine's tokens become text with stops applied, logprob entries that
// go with released text, a count and a reason. Streamed and whole replies both read from here, so
// they agree. Thread: one user at a time. No JSON, no sockets.
//
// completion_tokens counts tokens up to and including the one that completed a stop string or was
// an end; what the engine drew beyond is not counted. A logprob entry waits until text of its token
// is released. Tokens of a matched stop string have none, and neither have end tokens, so entries
// never show text that was held back.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/text.h"

namespace tenon::api {

struct TokenEntry {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  size_t byte_start = 0;  // in the bytes of all tokens of this choice
  size_t byte_len = 0;
  size_t char_start = 0;  // the same place in code points
};

// What one step released; both parts may be empty.
struct Piece {
  std::string text;
  std::vector<TokenEntry> entries;
};

class Choice {
 public:
  Choice(int index, std::shared_ptr<const text::Tokenizer> tokenizer,
         std::vector<std::string> stops, bool want_logprobs);

  Piece push(const engine::Token& token);  // not after over()
  Piece finish(FinishReason reason);  // the engine ended it: stop or length

  int index() const { return index_; }
  bool over() const { return over_; }
  const char* finish_reason() const { return finish_reason_name(reason_); }
  int completion_tokens() const { return tokens_; }

 private:
  Piece release(text::Reply::Delta delta, bool all);

  const int index_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const bool want_logprobs_;
  text::Reply reply_;
  std::deque<TokenEntry> waiting_;
  size_t bytes_ = 0, chars_ = 0;  // of tokens pushed
  size_t released_bytes_ = 0;  // of text given out
  int tokens_ = 0;
  bool over_ = false;
  FinishReason reason_ = FinishReason::stop;
};

}  // namespace tenon::api

#include "api/choice.h"

#include "base/check.h"

namespace tenon::api {

Choice::Choice(int index, std::shared_ptr<const text::Tokenizer> tokenizer,
               std::vector<std::string> stops, bool want_logprobs)
    : index_(index),
      tokenizer_(tokenizer),
      want_logprobs_(want_logprobs),
      reply_(std::move(tokenizer), std::move(stops)) {}

Piece Choice::push(const engine::Token& token) {
  CHECK(!over_);
  ++tokens_;
  if (token.end) return {};
  if (want_logprobs_) {
    // Special tokens have bytes but no text.
    const std::string_view bytes =
        tokenizer_->is_special(token.id) ? std::string_view() : tokenizer_->token_bytes(token.id);
    waiting_.push_back({token.id, token.logprob, token.top, bytes_, bytes.size(), chars_});
    bytes_ += bytes.size();
    for (const char c : bytes) chars_ += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  return release(reply_.push(token.id), false);
}

Piece Choice::finish(FinishReason reason) {
  CHECK(!over_);
  over_ = true;
  reason_ = reason;
  return release(reply_.finish(), true);
}

Piece Choice::release(text::Reply::Delta delta, bool all) {
  Piece piece;
  piece.text = std::move(delta.content);
  released_bytes_ += piece.text.size();
  if (delta.stop) {
    over_ = true;
    reason_ = FinishReason::stop;
    all = false;
  }
  while (!waiting_.empty()) {
    const TokenEntry& entry = waiting_.front();
    const bool out = entry.byte_start < released_bytes_ ||
                     (entry.byte_len == 0 && entry.byte_start == released_bytes_);
    if (!out && !all) break;
    piece.entries.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return piece;
}

}  // namespace tenon::api

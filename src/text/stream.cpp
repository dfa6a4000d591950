// TextStream: O(1) a token where the vocabulary is bytewise; otherwise the text of a short window
// of tokens is decoded twice and the difference sent.
#include <algorithm>

#include "text/text.h"
#include "text/utf8.h"

namespace tenon::text {

namespace {
// Tokens held back for a character that never completes; then they are sent as they are.
constexpr size_t kHeldMax = 16;
}  // namespace

struct TextStream::State {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool skip_special;

  std::string bytes;  // bytewise: an unfinished character

  // Otherwise: the newest tokens. The first `num_sent` of them have the text `sent`, which is out
  // already; they stay as left context for the next ones (a first token may lose its space).
  std::vector<int32_t> window;
  size_t num_sent = 0;
  std::string sent;

  std::string push_bytes(int32_t id) {
    if (!skip_special || !tokenizer->is_special(id)) bytes += tokenizer->token_bytes(id);
    return take_certain(bytes);
  }

  std::string text_of_window() const {
    auto text = tokenizer->decode(window, skip_special);
    return text.ok() ? std::move(text).value() : std::string();
  }

  std::string unsent(const std::string& text) const {
    const auto [a, b] = std::ranges::mismatch(text, sent);
    return std::string(a, text.end());
  }

  std::string push_window(int32_t id) {
    window.push_back(id);
    const std::string text = text_of_window();
    const bool unfinished = text.ends_with(kReplacement) && window.size() - num_sent <= kHeldMax;
    if (unfinished || text.size() <= sent.size()) return {};
    std::string delta = unsent(text);
    window.erase(window.begin(), window.begin() + static_cast<ptrdiff_t>(num_sent));
    num_sent = window.size();
    sent = text_of_window();
    return delta;
  }

  std::string flush_window() {
    std::string rest = window.size() > num_sent ? unsent(text_of_window()) : std::string();
    // Such decoders give one U+FFFD for each byte of an unfinished character.
    const bool unfinished = rest.ends_with(kReplacement);
    while (rest.ends_with(kReplacement)) rest.resize(rest.size() - kReplacement.size());
    if (unfinished) rest += kReplacement;
    window.clear();
    num_sent = 0;
    sent.clear();
    return rest;
  }
};

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : state_(std::make_unique<State>()) {
  state_->tokenizer = std::move(tokenizer);
  state_->skip_special = skip_special;
}
TextStream::~TextStream() = default;
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;

std::string TextStream::push(int32_t id) {
  if (id < 0 || id >= state_->tokenizer->vocab_size()) return flush() += kReplacement;
  return state_->tokenizer->bytewise() ? state_->push_bytes(id) : state_->push_window(id);
}

std::string TextStream::flush() {
  return state_->tokenizer->bytewise() ? take_all(state_->bytes) : state_->flush_window();
}

}  // namespace tenon::text

#include <algorithm>

#include "text/engine.h"
#include "text/gguf_vocab.h"
#include "text/utf8.h"

namespace tenon::text {

namespace {

class EngineTokenizer final : public Tokenizer {
 public:
  EngineTokenizer(Shim<TkTokenizer> engine, RepeatedIds repeated)
      : engine_(std::move(engine)), repeated_(std::move(repeated)) {
    const auto known = static_cast<int32_t>(tk_vocab_size(engine_.get()));
    vocab_size_ = std::max(known, repeated_.vocab_size);
    for (int32_t id = 0; id < known; ++id)
      if (is_special(id)) spellings_.emplace_back(token_bytes(id));
    std::ranges::sort(spellings_);
  }

  Result<std::vector<int32_t>> encode(std::string_view text, Control control) const override {
    return encode_as(text, control == Control::plain ? TK_PLAIN : TK_PARSE);
  }

  Result<std::vector<int32_t>> encode_with_specials(std::string_view text) const override {
    return encode_as(text, TK_FRAME);
  }

  Result<std::vector<int32_t>> encode_marked(std::string_view text, char32_t mark) const override {
    return shim_take<TkIds>([&](TkIds* out, TkText* error) {
      return tk_encode_marked(engine_.get(), text.data(), text.size(), mark, out, error);
    });
  }

  // A bytewise vocabulary is decoded here and not by the crate, so that one-shot text and streamed
  // text are the same even where bytes are invalid.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override {
    for (const int32_t id : ids)
      if (id < 0 || id >= vocab_size_)
        return invalid("token id {} is outside the vocabulary of {}", id, vocab_size_);
    if (bytewise()) {
      std::string bytes;
      for (const int32_t id : ids)
        if (!skip_special || !is_special(id)) bytes += token_bytes(id);
      return take_all(bytes);
    }
    std::vector<uint32_t> known(ids.size());
    std::ranges::transform(ids, known.begin(), [&](int32_t id) { return resolve(id); });
    return shim_take<TkText>([&](TkText* out, TkText* error) {
      return tk_decode(engine_.get(), known.data(), known.size(), skip_special, out, error);
    });
  }

  int32_t vocab_size() const override { return vocab_size_; }

  std::optional<int32_t> token_to_id(std::string_view token) const override {
    uint32_t id = 0;
    if (!tk_token_to_id(engine_.get(), token.data(), token.size(), &id)) return std::nullopt;
    return static_cast<int32_t>(id);
  }

  std::string_view token_bytes(int32_t id) const override {
    const TkToken token = tk_token(engine_.get(), resolve(id));
    return {reinterpret_cast<const char*>(token.bytes), token.len};
  }

  bool is_special(int32_t id) const override {
    return tk_token(engine_.get(), resolve(id)).special;
  }

  std::span<const std::string> special_spellings() const override { return spellings_; }
  bool bytewise() const override { return tk_is_bytewise(engine_.get()); }

 private:
  Result<std::vector<int32_t>> encode_as(std::string_view text, TkMode mode) const {
    return shim_take<TkIds>([&](TkIds* out, TkText* error) {
      return tk_encode(engine_.get(), text.data(), text.size(), mode, out, error);
    });
  }

  // A negative id becomes a huge one, which is in no table.
  uint32_t resolve(int32_t id) const {
    const auto it = repeated_.first.find(id);
    return static_cast<uint32_t>(it == repeated_.first.end() ? id : it->second);
  }

  const Shim<TkTokenizer> engine_;
  const RepeatedIds repeated_;
  int32_t vocab_size_ = 0;
  std::vector<std::string> spellings_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_engine(std::string_view tokenizer_json,
                                                     RepeatedIds repeated) {
  TENON_TRY(auto engine, shim_make<TkTokenizer>([&](TkTokenizer** out, TkText* error) {
              return tk_tokenizer_new(tokenizer_json.data(), tokenizer_json.size(), out, error);
            }));
  return std::shared_ptr<const Tokenizer>(
      std::make_shared<EngineTokenizer>(std::move(engine), std::move(repeated)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json) {
  auto made = make_engine(tokenizer_json, {});
  if (!made.ok()) made.error().message.insert(0, "tokenizer.json: ");
  return made;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufVocab& vocab) {
  TENON_TRY(GgufTokenizer converted, convert_gguf_vocab(vocab));
  auto made = make_engine(converted.tokenizer_json, std::move(converted.repeated));
  if (!made.ok()) made.error().message.insert(0, "GGUF tokenizer: ");
  return made;
}

}  // namespace tenon::text

// The door of text: tokenizer, chat template and reply assembly, over the Rust shim (rust/textkit).
// Thread: Tokenizer and ChatTemplate are immutable and shared by any thread; a TextStream,
// StopMatcher or Reply belongs to one request and has one user at a time. Units: ids are int32
// vocabulary indices; text is UTF-8. No MLX.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tenon::text {

// Tokenizer metadata of a GGUF file (tokenizer.ggml.*), as plain data.
struct GgufVocab {
  std::string model;  // "gpt2" (byte-level BPE) or "llama" (SentencePiece)
  std::string pre;  // split rule, e.g. "smollm"
  std::vector<std::string> tokens;
  std::vector<int32_t> token_types;  // 1 normal, 3 control, 4 user defined, 6 byte; may be empty
  std::vector<float> scores;  // may be empty
  std::vector<std::string> merges;  // "left right"
  std::optional<int32_t> bos_id, eos_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> add_space_prefix;  // SentencePiece: text begins with a space; default yes
};
// Out of checkpoint's TextFiles::gguf_vocab, whose types were checked when the file was read.
GgufVocab gguf_vocab_of(const Json& metadata);
// The same words as a tokenizer.json. Ids that repeat another id's spelling have no place in one.
// Errors: those of Tokenizer::from_gguf.
Result<std::string> tokenizer_json_of(const GgufVocab& vocab);

// What encode() makes of control-token spellings inside the text.
enum class Control {
  plain,  // text from people: "<|im_end|>" is ten characters
  parse,  // text from a template: control tokens become their ids
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // `tokenizer_json`: bytes of a tokenizer.json. Errors: corrupt, unsupported (named component).
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json);
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const GgufVocab& vocab);

  // No bos or eos is added. Errors: invalid (not UTF-8).
  virtual Result<std::vector<int32_t>> encode(std::string_view text, Control control) const = 0;
  // encode(parse) plus what the tokenizer's own post-processor adds (bos, eos).
  virtual Result<std::vector<int32_t>> encode_with_specials(std::string_view text) const = 0;
  // One-shot text of ids. Errors: invalid (id out of range).
  virtual Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const = 0;

  // encode(parse) of text in which the character `mark` stands inside spellings of special tokens
  // that must stay text: those are not recognised, others are, and the marks yield no tokens.
  // Unlike parse, a special token that only normalization spells is text too.
  virtual Result<std::vector<int32_t>> encode_marked(std::string_view text,
                                                     char32_t mark) const = 0;

  virtual int32_t vocab_size() const = 0;  // ids are in [0, vocab_size)
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // The raw bytes a token stands for (may be part of a character), empty when out of range.
  virtual std::string_view token_bytes(int32_t id) const = 0;
  virtual bool is_special(int32_t id) const = 0;
  // How the special tokens are spelled, in ascending byte order.
  virtual std::span<const std::string> special_spellings() const = 0;
  // True when decoded text is the joined token_bytes, invalid UTF-8 replaced. If not, a token's
  // text depends on its neighbours and only decode() knows it.
  virtual bool bytewise() const = 0;
};

// Ids to UTF-8 deltas, one token at a time; a character split over tokens comes out whole.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true);
  ~TextStream();
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  // The text that became certain with this token; may be empty. Ids out of range give U+FFFD.
  std::string push(int32_t id);
  // What is left at the end: an unfinished character becomes one U+FFFD.
  std::string flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Finds the earliest end of a stop string in streamed text and holds back only what may still
// match. Where two stop strings end at the same place, the longer one counts. Empty ones are
// ignored. The outcome does not depend on how the text was cut into deltas; time is linear in the
// text per stop.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);
  struct Output {
    std::string text;  // may be sent
    std::optional<std::string> stop;  // set once: the stop string that matched; nothing follows
  };
  Output push(std::string_view delta);
  std::string flush();  // text held back for a match that never came

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  // by prefix length: longest proper prefix that is a suffix too
    size_t matched = 0;  // longest prefix of `text` that the input now ends with
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  bool stopped_ = false;
};

// Step 11 of a token's life: ids of one choice become text deltas with stops applied.
class Reply {
 public:
  Reply(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
        bool skip_special = true);
  struct Delta {
    std::string content;
    std::optional<std::string> stop;  // a stop string matched: the reply is over
  };
  Delta push(int32_t id);
  Delta finish();  // flushes; call once, when the engine's stream ended without a stop match

 private:
  TextStream stream_;
  StopMatcher matcher_;
};

// A checkpoint's Jinja chat template, as transformers runs it.
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // Errors: invalid with the template's line. `source_name` appears in messages.
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string_view source,
                                                             std::string_view source_name);
  // `context`: messages, tools, add_generation_prompt, bos_token, ... Errors: invalid with the
  // template's own message (raise_exception), too_large when it runs past its step budget.
  virtual Result<std::string> render(const Json& context) const = 0;
};

struct ChatPrompt {
  std::vector<int32_t> ids;
  std::string text;  // as rendered
};
// Renders and tokenizes so that no string of the context can produce a control token: only the
// template's own text can, and top-level values named *_token. Null fields of a message count as
// absent. With `continue_final_message: true` in the context, as transformers defines it, the text
// ends with the final message's content. Exactly one bos opens the ids if the template writes it or
// the tokenizer's post-processor adds it. Errors: those of render; invalid (continue_final_message
// without content to continue, or together with add_generation_prompt).
Result<ChatPrompt> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const Json& context);

}  // namespace tenon::text

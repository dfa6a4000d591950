#include "text/text.h"

namespace tenon::text {

Reply::Reply(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
             bool skip_special)
    : stream_(std::move(tokenizer), skip_special), matcher_(std::move(stops)) {}

Reply::Delta Reply::push(int32_t id) {
  auto out = matcher_.push(stream_.push(id));
  return {std::move(out.text), std::move(out.stop)};
}

Reply::Delta Reply::finish() {
  // The unfinished character's U+FFFD is text like any other: it may end a match or complete one.
  auto out = matcher_.push(stream_.flush());
  if (!out.stop) out.text += matcher_.flush();
  return {std::move(out.text), std::move(out.stop)};
}

}  // namespace tenon::text

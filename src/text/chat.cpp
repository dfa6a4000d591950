#include <algorithm>

#include "text/marks.h"
#include "text/text.h"

namespace tenon::text {

namespace {

Error cannot_continue(std::string_view why) {
  return invalid("continue_final_message: {}", why).at("continue_final_message");
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Clients send "content": null beside tool calls; templates test for absence and would print None.
void drop_null_fields(Json& context) {
  const auto messages = context.find("messages");
  if (messages == context.end() || !messages->is_array()) return;
  for (Json& message : *messages) {
    if (!message.is_object()) continue;
    Json kept = Json::object();
    for (auto& [key, value] : message.items())
      if (!value.is_null()) kept[key] = std::move(value);
    message = std::move(kept);
  }
}

// Takes the flag out of the context, for templates do not know it.
Result<bool> take_continue_flag(Json& context) {
  TENON_TRY(const bool wanted, json_bool_or(context, "continue_final_message", "request", false));
  context.erase("continue_final_message");
  if (!wanted) return false;
  TENON_TRY(const bool prompt, json_bool_or(context, "add_generation_prompt", "request", false));
  if (prompt) return cannot_continue("cannot be combined with add_generation_prompt");
  return true;
}

// The text to continue: the final message's content, or the last text part of it.
Result<Json*> final_text(Json& context) {
  const auto messages = context.find("messages");
  if (messages == context.end() || !messages->is_array() || messages->empty())
    return cannot_continue("there are no messages");
  Json& message = messages->back();
  const auto content = message.is_object() ? message.find("content") : message.end();
  if (content == message.end()) return cannot_continue("the final message has no content");
  if (content->is_string()) return &*content;
  if (content->is_array())
    for (auto part = content->rbegin(); part != content->rend(); ++part)
      if (part->is_object() && part->contains("text") && (*part)["text"].is_string())
        return &(*part)["text"];
  return cannot_continue("the final message has no text");
}

// As transformers: a tag with a space behind it follows the content. Where the space has gone, the
// template strips content, and the space before the tag would have gone too.
Result<std::string> cut_at_tag(std::string text, const std::string& tag) {
  const size_t at = text.rfind(tag);
  if (at == std::string::npos)
    return cannot_continue("the template does not print the final message's content");
  const bool keeps_space = text.compare(at + tag.size(), 1, " ") == 0;
  text.resize(at);
  if (!keeps_space) text.resize(text.find_last_not_of(" \t\r\n") + 1);
  // The template may have printed the content before, in a title or a summary.
  for (size_t copy; (copy = text.find(tag)) != std::string::npos;)
    text.erase(copy, tag.size() + (text.compare(copy + tag.size(), 1, " ") == 0 ? 1 : 0));
  return text;
}

// What the tokenizer's post-processor puts in front of any text.
Result<std::vector<int32_t>> opening(const Tokenizer& tokenizer) {
  TENON_TRY(auto framed, tokenizer.encode_with_specials("a"));
  TENON_TRY(const auto bare, tokenizer.encode("a", Control::parse));
  const auto text = std::ranges::search(framed, bare).begin();
  if (bare.empty() || text == framed.end()) return std::vector<int32_t>{};
  framed.erase(text, framed.end());
  return framed;
}

// A template may write blank text before its bos.
bool opens_with(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, int32_t bos) {
  const auto first = std::ranges::find_if(ids, [&](int32_t id) {
    return tokenizer.is_special(id) || !is_blank(tokenizer.token_bytes(id));
  });
  return first != ids.end() && *first == bos;
}

}  // namespace

Result<ChatPrompt> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const Json& context) {
  if (!context.is_object()) return invalid("the template context must be an object");
  Json plain = context;
  drop_null_fields(plain);
  TENON_TRY(const bool continues, take_continue_flag(plain));
  TENON_TRY(const Marks marks, Marks::choose(plain, tokenizer.special_spellings()));
  Json marked = marks.apply(plain);
  if (continues) {
    TENON_TRY(Json* const text, final_text(marked));
    text->get_ref<std::string&>() += marks.spare() + " ";
  }

  auto rendered = chat_template.render(marked);
  if (!rendered.ok()) {
    // The template's own message may quote the messages.
    Error error = std::move(rendered).error();
    error.message = marks.clean(error.message).text;
    return error;
  }
  std::string text = std::move(rendered).value();
  if (continues) {
    TENON_TRY(text, cut_at_tag(std::move(text), marks.spare()));
  }
  Marks::Cleaned cleaned = marks.clean(text);

  ChatPrompt prompt;
  TENON_TRY(prompt.ids, tokenizer.encode_marked(cleaned.marked, marks.mark()));
  prompt.text = std::move(cleaned.text);
  TENON_TRY(const auto bos, opening(tokenizer));
  if (!bos.empty() && !opens_with(tokenizer, prompt.ids, bos.front()))
    prompt.ids.insert(prompt.ids.begin(), bos.begin(), bos.end());
  return prompt;
}

}  // namespace tenon::text

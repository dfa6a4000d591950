#include "cli/chat_session.h"

#include <cstdio>

#include "cli/flags.h"
#include "cli/sampling_flags.h"
#include "cli/suggest.h"
#include "cli/terminal.h"

namespace tenon::cli {

namespace {

constexpr const char* kHelp =
    "/help            this list\n"
    "/clear           forget the conversation, keep the system message\n"
    "/system TEXT     set the system message; without TEXT show it, with - remove it\n"
    "/save FILE       write the conversation as JSON\n"
    "/load FILE       go on from a saved conversation\n"
    "/params          show the sampling settings; /params NAME VALUE sets one\n"
    "/stats           speed of the last reply\n"
    "/exit            leave (Ctrl-D too)\n"
    "Several lines: paste them, end a line with \\, or put them between two \"\"\".\n"
    "A line that starts with // is a message that starts with /. Ctrl-C stops a reply.\n";

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}
void complain(const Error& error) { std::fprintf(stderr, "tenon: %s\n", error.message.c_str()); }
void say_or_complain(const Status& status, const std::string& text) {
  status ? say(text) : complain(status.error());
}

std::pair<std::string, std::string> split_word(const std::string& text) {
  size_t end = text.find_first_of(" \t\n");
  if (end == std::string::npos) return {text, ""};
  size_t rest = text.find_first_not_of(" \t\n", end);
  return {text.substr(0, end), rest == std::string::npos ? "" : text.substr(rest)};
}

}  // namespace

ChatSession::ChatSession(engine::Engine& engine, std::shared_ptr<const engine::Model> model)
    : engine_(engine), model_(std::move(model)), sampling_(model_->sampling) {}

bool ChatSession::handle(const std::string& input) {
  if (input.find_first_not_of(" \t\n") == std::string::npos) return true;
  if (input[0] == '/' && input.substr(0, 2) != "//") {
    auto [name, rest] = split_word(input);
    return command(name, rest);
  }
  reply_to(input[0] == '/' ? input.substr(1) : input);
  return true;
}

bool ChatSession::command(const std::string& name, const std::string& rest) {
  if (name == "/exit" || name == "/quit") return false;
  if (name == "/help") {
    say(kHelp);
  } else if (name == "/clear") {
    transcript_.clear();
    say("cleared\n");
  } else if (name == "/system") {
    if (!rest.empty()) transcript_.set_system(rest == "-" ? "" : rest);
    say(transcript_.system().empty() ? "no system message\n" : transcript_.system() + "\n");
  } else if (name == "/params") {
    params(rest);
  } else if (name == "/stats") {
    say(last_ ? describe(*last_) + "\n" : "no reply yet\n");
  } else if ((name == "/save" || name == "/load") && rest.empty()) {
    complain(invalid("{} needs a file name", name));
  } else if (name == "/save") {
    say_or_complain(transcript_.save(rest), "saved " + rest + "\n");
  } else if (name == "/load") {
    Status loaded = transcript_.load(rest);
    say_or_complain(loaded, fmt::format("{} messages\n", transcript_.messages().size()));
  } else {
    complain(invalid("unknown command {}{} (/help lists them)", name,
                     did_you_mean(name, {"/help", "/clear", "/system", "/save", "/load", "/params",
                                         "/stats", "/exit"})));
  }
  return true;
}

void ChatSession::params(const std::string& rest) {
  if (!rest.empty()) {
    auto [name, value] = split_word(rest);
    if (Status status = set_param(name, value); !status) return complain(status.error());
  }
  std::string seed = seed_ ? fmt::format("{}", *seed_) : "random";
  std::string limit = max_tokens_ ? fmt::format("{}", max_tokens_) : "rest of the window";
  say(show_sampling(sampling_) +
      fmt::format("{:<24} {}\n{:<24} {}\n", "seed", seed, "max_tokens", limit));
}

Status ChatSession::set_param(const std::string& name, const std::string& value) {
  if (name == "seed") {
    std::optional<uint64_t> seed = to_uint(value);
    if (!seed && value != "random") return invalid("seed: '{}' must be a number or random", value);
    seed_ = seed;
    return {};
  }
  if (name == "max_tokens" || name == "max-tokens") {
    std::optional<int64_t> limit = to_int(value);
    if (!limit || *limit < 0) return invalid("max_tokens: '{}' must be 0 or more", value);
    max_tokens_ = *limit;
    return {};
  }
  return set_sampling(sampling_, name, value);
}

void ChatSession::reply_to(const std::string& text) {
  transcript_.add("user", text);
  Result<StreamedReply> reply = generate();
  if (!reply) {
    transcript_.drop_last();  // an unanswered question would confuse the next turn
    return complain(reply.error());
  }
  say(reply->interrupted ? " [stopped]\n" : "\n");
  if (reply->reason == FinishReason::length) say("[cut at the token limit]\n");
  transcript_.add("assistant", reply->text);
  last_ = reply->stats;
}

Result<StreamedReply> ChatSession::generate() {
  Json context = {{"messages", transcript_.messages()},
                  {"add_generation_prompt", true},
                  {"bos_token", model_->bos_token},
                  {"eos_token", model_->eos_token}};
  TENON_TRY(text::ChatPrompt prompt,
            text::encode_chat(*model_->tokenizer, *model_->chat_template, context));
  sampling_.seed = seed_ ? *seed_ : random_seed();
  auto request = make_request(*model_, std::move(prompt.ids), sampling_, max_tokens_);
  InterruptGuard::clear();
  return stream_reply(engine_, *model_, std::move(request), {}, [](std::string_view delta) {
    say(std::string(delta));
    return std::ferror(stdout) == 0;
  });
}

}  // namespace tenon::cli

// tenon chat: a conversation in the terminal, with the engine in this process.
#include <unistd.h>

#include <cstdio>

#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/line_reader.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "cli/terminal.h"

namespace tenon::cli {

namespace {

class ChatVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.declare(flags);
    model_.declare_drafts(flags);
    model_.declare_chat_template(flags);
    sampling_.declare(flags);
    flags.text("system", &system_, "system message");
    flags.seed("seed", &seed_, "seed of every reply (without it: random)");
    flags.integer("max-tokens", &max_tokens_, 0, 1 << 24, "longest reply; 0: what fits");
  }

  Result<int> run() override {
    TENON_TRY(auto engine, model_.load());
    TENON_TRY(auto model, engine->model(""));
    if (!model->tokenizer || !model->chat_template) {
      return unsupported(
          "{}: no {}, so it cannot chat; tenon generate --raw may work, or give "
          "--chat-template FILE",
          model->name, model->tokenizer ? "chat template" : "tokenizer");
    }
    ChatSession session(*engine, model);
    session.set_system(system_);
    sampling_.apply(session.sampling());
    session.set_seed(seed_);
    session.set_max_tokens(max_tokens_);
    return converse(session, model->name);
  }

 private:
  static int converse(ChatSession& session, const std::string& model_name) {
    InterruptGuard guard;
    bool terminal = is_terminal(STDIN_FILENO);
    std::unique_ptr<LineReader> reader = make_line_reader(history_path());
    if (terminal) std::printf("%s; /help lists the commands\n", model_name.c_str());
    std::string message;
    for (;;) {
      std::fflush(stdout);
      InterruptGuard::clear();  // one that stopped a reply is spent
      ReadStatus status = read_message(*reader, &message);
      if (status == ReadStatus::end) break;
      if (status == ReadStatus::interrupted) {
        if (!terminal) return 1;
        continue;
      }
      if (!session.handle(message)) return 0;
      if (std::ferror(stdout)) return 1;
    }
    if (terminal) std::printf("\n");
    return 0;
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  std::string system_;
  std::optional<uint64_t> seed_;
  int64_t max_tokens_ = 0;
};

}  // namespace

TENON_COMMAND(chat, "talk to a model in the terminal", ChatVerb);

}  // namespace tenon::cli

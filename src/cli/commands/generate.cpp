// tenon generate: one prompt (argument or stdin), its reply on stdout as it comes.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "cli/stream_reply.h"
#include "cli/terminal.h"

namespace tenon::cli {

namespace {

class GenerateVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.positional("PROMPT", &prompt_, "the prompt (without it: read from stdin)");
    model_.declare(flags);
    model_.declare_drafts(flags);
    model_.declare_chat_template(flags);
    sampling_.declare(flags);
    flags.toggle("raw", &raw_, "no chat template: continue the prompt as it stands");
    flags.text("system", &system_, "system message");
    flags.seed("seed", &seed_, "seed of the draw (without it: random)");
    flags.integer("max-tokens", &max_tokens_, 0, 1 << 24, "longest reply; 0: what fits");
    flags.texts("stop", &stops_, "end the reply before this text");
    flags.texts("logit-bias", &biases_, "add BIAS to the logit of token ID", "ID=BIAS");
    flags.toggle("stats", &stats_, "tokens per second and time to first token, on stderr");
    flags.toggle("json", &json_, "one JSON object instead of streamed text");
  }

  Status check() override {
    if (raw_ && !system_.empty()) return invalid("--system: has no place in a --raw prompt");
    if (stops_.size() > 16) return invalid("--stop: {} given, at most 16", stops_.size());
    for (const std::string& text : biases_) TENON_OK(add_bias(text));
    return {};
  }

  Result<int> run() override {
    std::string prompt = prompt_ ? *prompt_ : read_stdin();
    // A pipe's last newline belongs to the line, not to what was asked; --raw takes every byte.
    bool newline = !prompt_ && !raw_ && !prompt.empty() && prompt.back() == '\n';
    if (newline) prompt.pop_back();
    model_.options().max_batch = 1;
    TENON_TRY(auto engine, model_.load());
    TENON_TRY(auto model, engine->model(""));
    if (!model->tokenizer) return unsupported("{}: no tokenizer, so no text", model->name);
    TENON_TRY(std::vector<int32_t> ids, encode(*model, prompt));
    SamplingParams params = model->sampling;
    sampling_.apply(params);
    params.seed = seed_ ? *seed_ : random_seed();
    params.logit_bias = logit_bias_;
    auto request = make_request(*model, std::move(ids), params, max_tokens_);
    InterruptGuard guard;
    bool json = json_;
    TENON_TRY(StreamedReply reply,
              stream_reply(*engine, *model, std::move(request), stops_,
                           [json](std::string_view delta) { return json || print(delta); }));
    if (json_) {
      print_json(*model, params.seed, reply);
    } else if (print("\n") && reply.interrupted) {
      std::fprintf(stderr, "tenon: stopped\n");
    }
    if (stats_) std::fprintf(stderr, "%s\n", describe(reply.stats).c_str());
    return reply.interrupted ? 1 : 0;
  }

 private:
  static bool print(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return std::ferror(stdout) == 0;
  }

  static std::string read_stdin() {
    if (is_terminal(STDIN_FILENO)) std::fprintf(stderr, "prompt, then Ctrl-D:\n");
    return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  }

  Status add_bias(const std::string& text) {
    size_t split = text.find('=');
    std::optional<int64_t> id = to_int(text.substr(0, split));
    std::optional<double> bias;
    if (split != std::string::npos) bias = to_double(text.substr(split + 1));
    bool good = id && bias && *id >= 0 && *id < (1LL << 31) && *bias >= -100 && *bias <= 100;
    if (!good) return invalid("--logit-bias: '{}' must be ID=BIAS with BIAS in -100..100", text);
    logit_bias_.emplace_back(static_cast<int32_t>(*id), static_cast<float>(*bias));
    return {};
  }

  Result<std::vector<int32_t>> encode(const engine::Model& model, const std::string& prompt) {
    if (raw_) return model.tokenizer->encode_with_specials(prompt);
    if (!model.chat_template) {
      return unsupported("{}: no chat template; use --raw or --chat-template FILE", model.name);
    }
    Json messages = Json::array();
    if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    Json context = {{"messages", messages},
                    {"add_generation_prompt", true},
                    {"bos_token", model.bos_token},
                    {"eos_token", model.eos_token}};
    TENON_TRY(text::ChatPrompt made,
              text::encode_chat(*model.tokenizer, *model.chat_template, context));
    return std::move(made.ids);
  }

  static void print_json(const engine::Model& model, uint64_t seed, const StreamedReply& reply) {
    const engine::Usage& usage = reply.stats.usage;
    Json json = {{"text", reply.text},
                 {"finish_reason", finish_reason_name(reply.reason)},
                 {"model", model.name},
                 {"seed", seed},
                 {"prompt_tokens", usage.prompt_tokens},
                 {"completion_tokens", usage.completion_tokens},
                 {"cached_tokens", usage.cached_tokens},
                 {"ttft_ms", reply.stats.first_token_ms},
                 {"total_ms", reply.stats.total_ms},
                 {"drafted_tokens", reply.stats.drafts.drafted},
                 {"accepted_tokens", reply.stats.drafts.accepted}};
    print(dump_json(json) + "\n");
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  std::optional<std::string> prompt_;
  bool raw_ = false, stats_ = false, json_ = false;
  std::string system_;
  std::optional<uint64_t> seed_;
  int64_t max_tokens_ = 0;
  std::vector<std::string> stops_, biases_;
  std::vector<std::pair<int32_t, float>> logit_bias_;
};

}  // namespace

TENON_COMMAND(generate, "one prompt to one reply", GenerateVerb);

}  // namespace tenon::cli

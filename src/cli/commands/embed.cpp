// tenon embed: texts to vectors, one line of JSON each.
#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"

namespace tenon::cli {

namespace {

class EmbedVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.positional("TEXT", &text_, "the text (without it: one text a line from stdin)");
    model_.declare(flags);
    flags.toggle("json", &json_, "an object a line, with index and tokens, instead of the vector");
  }

  Result<int> run() override {
    TENON_OK(model_.resolve());
    TENON_TRY(auto embedder, engine::load_embedder(model_.options()));
    if (text_) {
      TENON_OK(print({*text_}, *embedder));
      return 0;
    }
    // A bounded number at a time: a long file is neither held in memory nor waited for.
    constexpr size_t kTexts = 64;
    std::vector<std::string> texts;
    for (std::string line; std::getline(std::cin, line);) {
      texts.push_back(std::move(line));
      if (texts.size() < kTexts) continue;
      TENON_OK(print(texts, *embedder));
      texts.clear();
    }
    TENON_OK(print(texts, *embedder));
    return 0;
  }

 private:
  Status print(const std::vector<std::string>& texts, engine::Embedder& embedder) {
    auto embedded = embedder.embed(texts);
    if (!embedded.ok()) {
      Error error = std::move(embedded).error();
      if (printed_ > 0) error.message += fmt::format(" (counted from line {} on)", printed_ + 1);
      return error;
    }
    for (const engine::Embedding& each : *embedded) {
      Json line = each.values;
      if (json_)
        line = {{"index", printed_}, {"tokens", each.num_tokens}, {"embedding", each.values}};
      std::printf("%s\n", dump_json(line).c_str());
      ++printed_;
    }
    std::fflush(stdout);
    return std::ferror(stdout) ? Status(unavailable("standard output is closed")) : Status();
  }

  ModelFlags model_;
  std::optional<std::string> text_;
  bool json_ = false;
  size_t printed_ = 0;
};

}  // namespace

TENON_COMMAND(embed, "text to vectors", EmbedVerb);

}  // namespace tenon::cli

// tenon info: what a model is and how it would run here, with every reason; or why it is refused.
#include <cstdio>

#include "cli/command.h"
#include "cli/json_table.h"
#include "cli/model_flags.h"

namespace tenon::cli {

namespace {

class InfoVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.declare(flags);
    model_.declare_chat_template(flags);
    flags.toggle("json", &json_, "one JSON object");
  }

  Result<int> run() override {
    TENON_OK(model_.resolve());
    TENON_TRY(Json info, engine::inspect(model_.options()));
    std::string text = json_ ? dump_json(info) + "\n" : json_table(info);
    std::fputs(text.c_str(), stdout);
    return 0;
  }

 private:
  ModelFlags model_;
  bool json_ = false;
};

}  // namespace

TENON_COMMAND(info, "what a model is and how it would run", InfoVerb);

}  // namespace tenon::cli

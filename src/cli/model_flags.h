// The flags that choose a model and how it runs, shared by every verb that loads one.
#pragma once
#include <memory>
#include <string>

#include "cli/flags.h"
#include "engine/engine.h"

namespace tenon::cli {

class ModelFlags {
 public:
  // `log_level`: the verb's default; a server says more than a one-shot verb.
  void declare(Flags& flags, const std::string& log_level = "warn");
  void declare_drafts(Flags& flags);         // for verbs that generate
  void declare_chat_template(Flags& flags);  // for verbs that use one
  // --model as the hub finds it, laid into options(). Errors: not_found.
  Status resolve();
  // resolve() and load, with a progress bar when stderr is a terminal.
  Result<std::unique_ptr<engine::LocalEngine>> load();

  engine::EngineOptions& options() { return options_; }
  int threads() const { return options_.threads; }

 private:
  engine::EngineOptions options_;
  std::string model_;
  std::string log_level_;
};

}  // namespace tenon::cli

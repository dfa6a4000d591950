// A verb: what commands/<verb>.cpp defines and commands.def lists.
// A verb declares its flags, checks what they say together, and runs. Thread: the main one.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"

namespace tenon::cli {

class Verb {
 public:
  virtual ~Verb() = default;
  virtual void declare(Flags& flags) = 0;
  // After parsing, before anything happens; an error here is a usage error (exit 2).
  virtual Status check() { return {}; }
  // The exit code, or an Error that becomes one line on stderr and exit 1.
  virtual Result<int> run() = 0;
};

struct Command {
  const char* name;
  const char* summary;  // one line for `tenon --help`
  std::unique_ptr<Verb> (*make)();
};
// In the order of commands.def.
const std::vector<Command>& commands();

// TENON_COMMAND(ls, "models on this machine", LsVerb) at the end of commands/ls.cpp.
#define TENON_COMMAND(verb, summary, Type)                                             \
  extern const Command command_##verb;                                                 \
  const Command command_##verb {                                                       \
    #verb, summary, []() -> std::unique_ptr<Verb> { return std::make_unique<Type>(); } \
  }

}  // namespace tenon::cli

#include "cli/cli.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/command.h"
#include "cli/suggest.h"

#ifndef TENON_VERSION
#define TENON_VERSION "0.1.0"
#endif

namespace tenon::cli {

#define ENTRY(verb) extern const Command command_##verb;
#include "cli/commands.def"
#undef ENTRY

const std::vector<Command>& commands() {
  static const std::vector<Command> list{
#define ENTRY(verb) command_##verb,
#include "cli/commands.def"
#undef ENTRY
  };
  return list;
}

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int complain(const std::string& message, int code) {
  std::fprintf(stderr, "tenon: %s\n", message.c_str());
  return code;
}

int print_overview() {
  std::printf("tenon %s: runs language models on this machine\n\n", TENON_VERSION);
  std::printf("Usage: tenon [VERB] [FLAGS]     (no verb: serve)\n\nVerbs:\n");
  for (const Command& command : commands()) {
    std::printf("  %-10s %s\n", command.name, command.summary);
  }
  std::printf("\ntenon VERB --help lists a verb's flags; tenon --version prints the version.\n");
  return 0;
}

std::vector<std::string> flags_of_other_verbs(const Command& self) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == self.name) continue;
    Flags flags(command.name, "");
    std::unique_ptr<Verb> verb = command.make();
    verb->declare(flags);
    for (std::string& name : flags.names()) names.push_back(std::move(name));
  }
  return names;
}

int run_command(const Command& command, const std::vector<std::string>& args) {
  Flags flags(command.name, command.summary);
  std::unique_ptr<Verb> verb = command.make();
  verb->declare(flags);
  flags.known_elsewhere(flags_of_other_verbs(command));
  Result<Flags::Outcome> parsed = flags.parse(args);
  if (!parsed) return complain(parsed.error().message, kUsage);
  if (*parsed == Flags::Outcome::help) {
    std::fputs(flags.help_text().c_str(), stdout);
    return 0;
  }
  if (Status checked = verb->check(); !checked) return complain(checked.error().message, kUsage);
  Result<int> code = verb->run();
  return code ? *code : complain(code.error().message, kFailed);
}

int dispatch(std::vector<std::string> args) {
  std::string verb = "serve";
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) return print_overview();
  if (!args.empty() && args[0] == "--version") {
    std::printf("tenon %s\n", TENON_VERSION);
    return 0;
  }
  if (!args.empty() && args[0].substr(0, 1) != "-") {
    verb = args[0];
    args.erase(args.begin());
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (verb == command.name) return run_command(command, args);
    names.push_back(command.name);
  }
  return complain(
      "unknown verb '" + verb + "'" + did_you_mean(verb, names) + " (tenon --help lists them)",
      kUsage);
}

}  // namespace

int run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe or socket is an error code, not the end
  try {
    return dispatch(std::vector<std::string>(argv + std::min(1, argc), argv + argc));
  } catch (const std::exception& error) {
    return complain(std::string("internal error: ") + error.what(), kFailed);
  }
}

}  // namespace tenon::cli

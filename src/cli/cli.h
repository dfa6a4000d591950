// The door of cli: `tenon VERB`. One file per verb in commands/, one ENTRY line in commands.def.
// Exit codes: 0 ok, 1 failed, 2 usage. Errors are one line on stderr. Thread: the main one.
#pragma once

namespace tenon::cli {
int run(int argc, char** argv);
}  // namespace tenon::cli

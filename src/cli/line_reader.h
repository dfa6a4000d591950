// Lines from a person: edited with history on a terminal (libedit), plain when stdin is a pipe.
// Thread: one. The terminal reader expects an InterruptGuard around it: Ctrl-C gives up the line.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

namespace tenon::cli {

enum class ReadStatus { line, end, interrupted };

class LineReader {
 public:
  virtual ~LineReader() = default;
  // One line without its newline. `more`: the prompt of a message's later lines.
  virtual ReadStatus read(std::string* line, bool more) = 0;
  // A line is there already: on a terminal, what remains of a paste.
  virtual bool has_pending() = 0;
  virtual void remember(const std::string& line) = 0;  // in the history
};

// `history`: the file to load and, at the end, save; ignored for a pipe. Empty: none.
std::unique_ptr<LineReader> make_line_reader(const std::filesystem::path& history);

// $XDG_STATE_HOME/tenon/history or ~/.local/state/tenon/history; the folder is made. Empty: no
// home.
std::filesystem::path history_path();

// One message: a line; or lines joined by a trailing backslash, by a paste, or between two `"""`.
ReadStatus read_message(LineReader& reader, std::string* message);

}  // namespace tenon::cli

#include "cli/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <iostream>

#include "cli/terminal.h"

namespace tenon::cli {

namespace fs = std::filesystem;

namespace {

class PlainReader : public LineReader {
 public:
  ReadStatus read(std::string* line, bool) override {
    if (std::getline(std::cin, *line)) return ReadStatus::line;
    return InterruptGuard::is_raised() ? ReadStatus::interrupted : ReadStatus::end;
  }
  bool has_pending() override { return false; }  // every line of a pipe is its own message
  void remember(const std::string&) override {}
};

bool more_prompt = false;  // libedit's prompt callback takes no context
char* prompt_text(EditLine*) {
  static char first[] = "> ", later[] = ". ";
  return more_prompt ? later : first;
}

constexpr char kEndOfFileKey = 'D' & 0x1f;

// libedit's own reader swallows the first interrupted read; this one ends the line at Ctrl-C.
int read_wide_char(EditLine*, wchar_t* out) {
  std::mbstate_t state{};
  for (;;) {
    char byte = 0;
    ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR && !InterruptGuard::is_raised()) continue;
    if (got <= 0) return static_cast<int>(got);
    // The end-of-file key, pressed before libedit took the terminal out of line mode, waits as NUL.
    if (byte == 0) byte = kEndOfFileKey;
    size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<size_t>(-1)) {
      state = {};  // not UTF-8: drop the byte
      continue;
    }
    if (used != static_cast<size_t>(-2)) return 1;
  }
}

class TerminalReader : public LineReader {
 public:
  explicit TerminalReader(fs::path history_file)
      : history_file_(std::move(history_file)),
        editor_(el_init("tenon", stdin, stdout, stderr)),
        history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
    el_set(editor_, EL_PROMPT, prompt_text);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_GETCFN, read_wide_char);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~TerminalReader() override {
    HistEvent event;
    mode_t before = umask(077);  // what one typed is nobody else's business
    if (!history_file_.empty()) history(history_, &event, H_SAVE, history_file_.c_str());
    umask(before);
    history_end(history_);
    el_end(editor_);
  }

  ReadStatus read(std::string* line, bool more) override {
    more_prompt = more;
    el_resize(editor_);
    int count = 0;
    const char* text = el_gets(editor_, &count);
    if (InterruptGuard::is_raised()) {
      el_reset(editor_);
      std::fputs("\n", stdout);
      return ReadStatus::interrupted;
    }
    if (!text || count <= 0) return ReadStatus::end;
    line->assign(text, static_cast<size_t>(count));
    while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
    return ReadStatus::line;
  }
  bool has_pending() override {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, 30) > 0;  // a terminal sends a paste in pieces, so wait a little
  }
  void remember(const std::string& line) override {
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
  }

 private:
  fs::path history_file_;
  EditLine* editor_;
  History* history_;
};

// Moves the lines up to the closing `"""` behind *message, which holds what followed the opening
// one.
ReadStatus read_block(LineReader& reader, std::string* message) {
  constexpr std::string_view kFence = "\"\"\"";
  std::string line = *message;
  message->clear();
  for (;;) {
    size_t fence = line.find(kFence);
    message->append(line, 0, fence);
    if (fence != std::string::npos) return ReadStatus::line;
    if (!message->empty() || !line.empty()) message->push_back('\n');
    ReadStatus status = reader.read(&line, true);
    if (status != ReadStatus::line) return status;
  }
}

}  // namespace

std::unique_ptr<LineReader> make_line_reader(const fs::path& history) {
  if (!is_terminal(STDIN_FILENO)) return std::make_unique<PlainReader>();
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  return std::make_unique<TerminalReader>(history);
}

fs::path history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path dir;
  if (state && *state) {
    dir = state;
  } else if (home && *home) {
    dir = fs::path(home) / ".local/state";
  } else {
    return {};
  }
  std::error_code error;
  fs::create_directories(dir / "tenon", error);
  return error ? fs::path() : dir / "tenon/history";
}

ReadStatus read_message(LineReader& reader, std::string* message) {
  ReadStatus status = reader.read(message, false);
  if (status != ReadStatus::line) return status;
  reader.remember(*message);
  if (message->rfind("\"\"\"", 0) == 0) {
    message->erase(0, 3);
    return read_block(reader, message);
  }
  for (;;) {
    bool continued = !message->empty() && message->back() == '\\';
    if (!continued && !reader.has_pending()) return ReadStatus::line;
    if (continued) message->pop_back();
    std::string line;
    status = reader.read(&line, true);
    if (status == ReadStatus::end) return ReadStatus::line;  // what came counts
    if (status != ReadStatus::line) return status;
    message->append("\n" + line);
  }
}

}  // namespace tenon::cli

// What a terminal user sees besides text: a progress bar, and Ctrl-C as "stop this", not "die".
#pragma once
#include <chrono>
#include <string>

namespace tenon::cli {

bool is_terminal(int fd);

// One line on stderr, redrawn in place at most ten times a second; nothing at all when stderr is
// not a terminal. Erased by done() or the destructor. Thread: one at a time.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  void show(const std::string& stage, double fraction);  // fraction in [0, 1]
  void done();

 private:
  bool enabled_;
  bool drawn_ = false;
  std::string stage_;
  std::chrono::steady_clock::time_point last_{};
};

// While one lives, SIGINT only raises a flag. System calls are interrupted, not restarted, so
// that a waiting read returns. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool is_raised();
  static void clear();
};

}  // namespace tenon::cli

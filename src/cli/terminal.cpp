#include "cli/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace tenon::cli {

namespace {
std::atomic<bool> raised{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");
struct sigaction before_guard;
void on_interrupt(int) { raised.store(true); }
}  // namespace

bool is_terminal(int fd) { return isatty(fd) == 1; }

ProgressBar::ProgressBar() : enabled_(is_terminal(STDERR_FILENO)) {}
ProgressBar::~ProgressBar() { done(); }

void ProgressBar::show(const std::string& stage, double fraction) {
  if (!enabled_) return;
  auto now = std::chrono::steady_clock::now();
  if (drawn_ && stage == stage_ && now - last_ < std::chrono::milliseconds(100)) return;
  constexpr int kWidth = 30;
  double share = std::clamp(fraction, 0.0, 1.0);
  int filled = static_cast<int>(share * kWidth);
  std::string line = fmt::format("\r\x1b[K{:<10} [{}{}] {:3.0f} %", stage, std::string(filled, '#'),
                                 std::string(kWidth - filled, '.'), share * 100);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
  stage_ = stage;
  last_ = now;
}

void ProgressBar::done() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

InterruptGuard::InterruptGuard() {
  raised.store(false);
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_guard);
}
InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &before_guard, nullptr); }
bool InterruptGuard::is_raised() { return raised.load(); }
void InterruptGuard::clear() { raised.store(false); }

}  // namespace tenon::cli

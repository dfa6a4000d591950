#include "cli/signals.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/log.h"

namespace tenon::cli {

Shutdown::Shutdown(std::function<void()> drain, std::function<void()> cut, int64_t deadline_ms)
    : drain_(std::move(drain)), cut_(std::move(cut)), deadline_ms_(deadline_ms) {}

Shutdown::~Shutdown() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  if (drainer_.joinable()) drainer_.join();
  if (finisher_.joinable()) finisher_.join();
}

void Shutdown::begin(int signal) {
  if (begun_) _exit(1);
  begun_ = true;
  log_info("{}: finishing running requests, at most {} ms (again: stop at once)",
           signal == SIGINT ? "SIGINT" : "SIGTERM", deadline_ms_);
  drainer_ = std::thread(drain_);
  finisher_ = std::thread([this] { finish(); });
}

bool Shutdown::wait_until_over(int64_t ms) {
  std::unique_lock lock(mutex_);
  return over_changed_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return over_; });
}

void Shutdown::finish() {
  constexpr int64_t kWriteOutMs = 200;
  if (wait_until_over(deadline_ms_ + kWriteOutMs)) return;
  log_warn("some replies did not end in time; cutting them");
  cut_();
  if (!wait_until_over(2000)) _exit(0);
}

}  // namespace tenon::cli

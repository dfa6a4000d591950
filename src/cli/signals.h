// Stopping a server: the first SIGINT or SIGTERM asks it to finish, the second ends the process.
// Thread: begin() from the I/O loop's signal callback; the destructor from the main thread after
// run().
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace tenon::cli {

class Shutdown {
 public:
  // `drain` may block; it runs on a thread of its own, so the I/O loop keeps writing replies.
  // What is still there after `deadline_ms` (and a little to write it out) is ended by `cut`;
  // should even that not help within two seconds, the process exits with 0.
  Shutdown(std::function<void()> drain, std::function<void()> cut, int64_t deadline_ms);
  ~Shutdown();  // waits for both
  void begin(int signal);

 private:
  void finish();
  bool wait_until_over(int64_t ms);
  std::function<void()> drain_, cut_;
  int64_t deadline_ms_;
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool begun_ = false;
  bool over_ = false;
  std::thread drainer_, finisher_;
};

}  // namespace tenon::cli

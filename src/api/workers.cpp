// The pool behind Workers: two queues, one bounded for new requests, one for steps of running ones.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "api/api.h"
#include "base/log.h"

namespace tenon::api {
namespace {

class Pool : public Workers {
 public:
  Pool(int threads, size_t queue_max) : queue_max_(queue_max) {
    for (int i = 0; i < std::max(threads, 1); ++i) threads_.emplace_back([this] { run(); });
  }

  ~Pool() override {
    stop();
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool post(std::function<void()> task) override {
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || fresh_.size() >= queue_max_) return false;
      fresh_.push_back(std::move(task));
    }
    ready_.notify_one();
    return true;
  }

  void post_more(std::function<void()> task) override {
    {
      std::lock_guard lock(mutex_);
      more_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

  void stop() override {
    std::deque<std::function<void()>> dropped;  // dies outside the lock: closures own responses
    std::unique_lock lock(mutex_);
    stopping_ = true;
    dropped.swap(fresh_);
    handled_.wait(lock, [&] { return handling_ == 0; });
    lock.unlock();
  }

 private:
  // Steps of running replies go first, since each is short and somebody is reading; every fourth
  // pick takes a new request so that many streams cannot keep one out.
  bool take(std::function<void()>* task, bool* is_fresh) {
    *is_fresh = !fresh_.empty() && (more_.empty() || ++picks_ % 4 == 0);
    auto& queue = *is_fresh ? fresh_ : more_;
    if (queue.empty()) return false;
    *task = std::move(queue.front());
    queue.pop_front();
    return true;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      std::function<void()> task;
      bool is_fresh = false;
      ready_.wait(lock, [&] { return take(&task, &is_fresh) || ending_; });
      if (!task) return;
      handling_ += is_fresh;
      lock.unlock();
      try {
        task();
      } catch (const std::exception& e) {
        log_warn("a request task threw: {}", e.what());
      } catch (...) {
        log_warn("a request task threw");
      }
      task = nullptr;
      lock.lock();
      handling_ -= is_fresh;
      if (is_fresh && handling_ == 0) handled_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_, handled_;
  std::deque<std::function<void()>> fresh_, more_;
  const size_t queue_max_;
  unsigned picks_ = 0;
  int handling_ = 0;  // new requests being handled right now
  bool stopping_ = false, ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Workers> make_workers(int threads, size_t queue_max) {
  return std::make_unique<Pool>(threads, queue_max);
}

}  // namespace tenon::api

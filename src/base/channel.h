// Bounded hand-over between threads, and the cancel flag.
//
// Channel<T>: many producers, one consumer at a time. push never blocks: a full channel refuses,
// so a producer that must not lose items (the engine) is given a capacity it cannot exceed.
// on_ready runs on the pushing thread after an item became visible; it must be quick and must not
// call back into the channel's producer.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace tenon {

template <class T>
class Channel {
 public:
  explicit Channel(size_t capacity, std::function<void()> on_ready = {})
      : capacity_(capacity), on_ready_(std::move(on_ready)) {}

  // False when full or closed; the item is then dropped.
  [[nodiscard]] bool push(T item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    if (on_ready_) on_ready_();
    return true;
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  // Waits for an item; nothing when closed and drained.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  template <class Rep, class Period>
  std::optional<T> pop_for(std::chrono::duration<Rep, Period> wait) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, wait, [&] { return closed_ || !items_.empty(); });
    return take();
  }

  // No more items are taken; those inside can still be popped.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  const size_t capacity_;
  bool closed_ = false;
  const std::function<void()> on_ready_;
};

class CancelFlag {
 public:
  void set() { flag_.store(true, std::memory_order_release); }
  bool is_set() const { return flag_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> flag_{false};
};

}  // namespace tenon

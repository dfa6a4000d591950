// Tells ThreadSanitizer what MLX's queue orders: work that the engine's thread hands to MLX's
// stream thread, and its results. MLX is not built with it, so there the order is invisible; in
// other builds this is nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define TENON_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TENON_TSAN 1
#endif
#endif

#ifdef TENON_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace tenon {

// The last capture of a task's closure: once it is copied, everything that the closure holds is
// there for the stream's thread.
class Handover {
 public:
#ifdef TENON_TSAN
  Handover() = default;
  Handover(const Handover&) noexcept { __tsan_release(this); }
  Handover& operator=(const Handover&) = delete;
  ~Handover() = default;

  struct Taken {
    Taken() = default;
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() { __tsan_release(&stream_); }
  };
  Taken taken() const {
    __tsan_acquire(const_cast<Handover*>(this));
    return {};
  }
  static void returned() { __tsan_acquire(&stream_); }

 private:
  inline static char stream_;
#else
  struct Taken {};
  // Held by the task while it runs.
  Taken taken() const { return {}; }
  // After mx::eval or mx::synchronize, on the engine's thread.
  static void returned() {}
#endif
};

}  // namespace tenon

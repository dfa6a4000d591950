// What orders two threads, told to ThreadSanitizer where it cannot see for itself: inside MLX's
// library, which is not built with it. Nothing in other builds. Only for an order that is real.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace tenon {

// Everything before a release of `tag` comes before everything after a later acquire of it.
inline void race_release([[maybe_unused]] void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(tag);
#endif
}
inline void race_acquire([[maybe_unused]] void* tag) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(tag);
#endif
}

}  // namespace tenon

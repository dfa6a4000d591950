// The kernel pool: fork and join for loops of a few microseconds.
// run() hands the indices of one loop to the caller and to sleeping workers; workers spin for at
// most 20 us for the next loop and then sleep, so an idle pool uses no CPU. Which thread computes
// an index never shows in a result. Threads: run() may be called from any thread, one at a time.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tenon::cpu {

class Pool {
 public:
  explicit Pool(int num_threads);  // the caller of run() is one of them
  ~Pool();
  Pool(const Pool&) = delete;
  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(i) for each i in [0, n). `work` must not throw.
  template <class Work>
  void run(int n, const Work& work) {
    run_erased(n, [](const void* w, int i) { (*static_cast<const Work*>(w))(i); }, &work);
  }

 private:
  using Call = void (*)(const void* work, int i);
  void run_erased(int n, Call call, const void* work);
  void worker();
  bool claim_all();  // runs indices until none is left; false when there was none

  std::mutex one_at_a_time_;
  // A loop is open while remaining_ > 0; index n - remaining_ is the next. Written before
  // remaining_ is, read after a successful claim.
  Call call_ = nullptr;
  const void* work_ = nullptr;
  int num_ = 0;
  std::atomic<int64_t> remaining_{0};
  std::atomic<int> active_{0};        // workers that may be inside the current loop
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

// Physical cores that this process may run on, at least 1.
int physical_cores();

}  // namespace tenon::cpu

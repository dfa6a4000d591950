#include "ops/kernels/cpu/pool.h"

#include <hwy/base.h>
#include <sched.h>

#include <chrono>
#include <fstream>
#include <set>
#include <string>

namespace tenon::cpu {

namespace {

constexpr auto kSpin = std::chrono::microseconds(20);

void pause_cpu() {
#if HWY_ARCH_X86
  __builtin_ia32_pause();
#elif HWY_ARCH_ARM_A64
  asm volatile("yield");
#endif
}

// Spins until done() or until kSpin is over.
template <class Done>
bool spin(const Done& done) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < until);
  return done();
}

}  // namespace

Pool::Pool(int num_threads) {
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { worker(); });
}

Pool::~Pool() {
  stopping_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
}

bool Pool::claim_all() {
  bool any = false;
  for (;;) {
    // A stale worker only drives the count further below zero; the next loop stores it anew.
    const int64_t left = remaining_.fetch_sub(1, std::memory_order_acq_rel);
    if (left <= 0) return any;
    any = true;
    call_(work_, num_ - static_cast<int>(left));
  }
}

void Pool::run_erased(int n, Call call, const void* work) {
  if (n <= 0) return;
  if (n == 1 || workers_.empty()) {
    for (int i = 0; i < n; ++i) call(work, i);
    return;
  }
  const std::lock_guard lock(one_at_a_time_);
  call_ = call;
  work_ = work;
  num_ = n;
  remaining_.store(n, std::memory_order_release);
  generation_.fetch_add(1);
  generation_.notify_all();
  claim_all();
  // What workers claimed is being computed: wait for it, briefly by spinning.
  while (!spin([&] { return active_.load(std::memory_order_acquire) == 0; })) {
    const int active = active_.load(std::memory_order_acquire);
    if (active != 0) active_.wait(active);
  }
}

void Pool::worker() {
  uint32_t seen = 0;
  while (!stopping_) {
    active_.fetch_add(1, std::memory_order_acq_rel);
    claim_all();
    if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) active_.notify_all();
    if (spin([&] { return generation_.load() != seen || stopping_; })) {
      seen = generation_.load();
      continue;
    }
    generation_.wait(seen);
    seen = generation_.load();
  }
}

int physical_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  std::set<std::string> cores;  // hyperthreads of one core share a list of siblings
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(std::getline(file, siblings) ? siblings : std::to_string(cpu));
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

}  // namespace tenon::cpu

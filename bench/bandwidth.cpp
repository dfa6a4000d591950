// How fast this machine reads memory: the ceiling of decoding, which reads every weight once a
// token.
//   bandwidth [THREADS] [MIB]
// Each thread sums its own part of a buffer far larger than the caches, plainly and with software
// prefetch; the fastest of several rounds counts. Prints one number: gigabytes (1e9) a second.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 7;
constexpr size_t kLineWords = 8;  // 64 bytes

// A sum over whole lines in eight accumulators, so that no addition waits for the last.
template <size_t kAheadBytes>
uint64_t read_all(const uint64_t* words, size_t count) {
  uint64_t sums[kLineWords] = {};
  for (size_t i = 0; i < count; i += kLineWords) {
    if constexpr (kAheadBytes > 0)
      __builtin_prefetch(reinterpret_cast<const char*>(words + i) + kAheadBytes);
    for (size_t j = 0; j < kLineWords; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  return total;
}

using Read = uint64_t (*)(const uint64_t*, size_t);

// Seconds for all threads to read all parts, from a common start to the last one's end.
double time_round(Read read, const std::vector<std::vector<uint64_t>>& parts) {
  std::atomic<size_t> ready{0};
  std::atomic<bool> go{false};
  std::atomic<uint64_t> sink{0};
  std::vector<std::thread> threads;
  for (const auto& part : parts) {
    threads.emplace_back([&] {
      ++ready;
      while (!go) {
      }
      sink += read(part.data(), part.size());
    });
  }
  while (ready < parts.size()) std::this_thread::yield();
  const auto start = std::chrono::steady_clock::now();
  go = true;
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (sink == 1) std::puts("");  // the sums must be computed
  return took.count();
}

}  // namespace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int num_threads = argc > 1 ? std::atoi(argv[1]) : cores;
  const int mib = argc > 2 ? std::atoi(argv[2]) : 1024;
  if (num_threads < 1 || num_threads > 1024 || mib < 1) {
    std::fprintf(stderr, "bandwidth: THREADS and MIB must be positive\n");
    return 2;
  }
  const size_t words = (static_cast<size_t>(mib) << 20) / sizeof(uint64_t) / num_threads;
  const size_t whole_lines = words / kLineWords * kLineWords;
  const std::vector<std::vector<uint64_t>> parts(num_threads,
                                                 std::vector<uint64_t>(whole_lines, 3));
  double best = 1e9;
  for (Read read : {read_all<0>, read_all<512>, read_all<2048>})
    for (int round = 0; round < kRounds; ++round) best = std::min(best, time_round(read, parts));
  const double bytes = static_cast<double>(whole_lines) * sizeof(uint64_t) * num_threads;
  std::printf("%.2f\n", bytes / best / 1e9);
  return 0;
}

// A small integer generator for tests, the same on every machine and library.
#pragma once
#include <cstdint>
#include <vector>

namespace tenon::cpu {

class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t bits() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return static_cast<uint32_t>(z >> 32);
  }
  int below(int n) { return static_cast<int>(bits() % static_cast<uint32_t>(n)); }
  // Uniform in [-1, 1), a multiple of 2^-23.
  float unit() { return static_cast<float>(static_cast<int32_t>(bits()) >> 8) * 0x1p-23f; }
  std::vector<float> units(size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = unit();
    return v;
  }

 private:
  uint64_t state_;
};

// FNV-1a over the bytes of floats.
inline uint64_t fingerprint(const std::vector<float>& values, uint64_t hash = 1469598103934665603u) {
  const auto* at = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) hash = (hash ^ at[i]) * 1099511628211u;
  return hash;
}

}  // namespace tenon::cpu

// A small integer generator for tests, the same on every machine and library.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
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
  bool one_in(int n) { return below(n) == 0; }
  // Uniform in [-1, 1), a multiple of 2^-23.
  float unit() { return static_cast<float>(static_cast<int32_t>(bits()) >> 8) * 0x1p-23f; }
  // Any float at all: NaN, infinite, subnormal.
  float any() {
    const uint32_t pattern = bits();
    float value;
    std::memcpy(&value, &pattern, sizeof(value));
    return value;
  }
  // What breaks arithmetic: zeros, subnormals, the largest, infinities, NaN.
  float odd() {
    static constexpr float kOdd[] = {0.0f,    -0.0f,    1e-42f,    -1e-40f,    0x1p-126f, 0x1p-100f,
                                     -1e-31f, 1e-6f,    1.0f,      -65519.0f,  65520.0f,  1e30f,
                                     3.4e38f, -3.4e38f, HUGE_VALF, -HUGE_VALF, NAN};
    return kOdd[below(static_cast<int>(std::size(kOdd)))];
  }
  std::vector<float> units(size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = unit();
    return v;
  }
  // In [-20, 20), or a quarter odd and a quarter of any bits.
  std::vector<float> values(int n, bool wild) {
    auto v = units(n);
    for (float& x : v) x = !wild || one_in(2) ? x * 20 : one_in(2) ? odd() : any();
    return v;
  }

 private:
  uint64_t state_;
};

}  // namespace tenon::cpu

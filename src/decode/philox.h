// Philox4x32-10: counter-based random bits; the same (key, counter) gives the same bits everywhere.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; test vectors from
// its reference distribution (Random123).
#pragma once
#include <array>
#include <cstdint>

namespace tenon::decode {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * counter[0];
    const uint64_t b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

enum class DrawPurpose : uint32_t { token = 0, xtc = 1 };

// Uniform in [0, 1): the top 53 bits of the block for (seed, step, choice, purpose).
constexpr double uniform(uint64_t seed, uint32_t step, uint32_t choice, DrawPurpose purpose) {
  const PhiloxCounter bits =
      philox4x32({step, choice, static_cast<uint32_t>(purpose), 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t high64 = static_cast<uint64_t>(bits[1]) << 32 | bits[0];
  return static_cast<double>(high64 >> 11) * 0x1.0p-53;
}

}  // namespace tenon::decode

// Which tables the tests of this room compare, and how. Header only. Thread: one.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/half.h"
#include "ops/kernels/cpu/reference.h"
#include "ops/kernels/cpu/test_random.h"

namespace tenon::cpu {

// The targets that owe the reference its bits: those with fused multiply-add.
inline std::vector<const Table*> fused_tables() {
  std::vector<const Table*> tables;
  for (const Table* t : all_tables())
    if (t != &reference_table() && std::strcmp(t->name, "sse4") != 0) tables.push_back(t);
  return tables;
}

// Equal bits; any NaN equals any NaN.
inline bool same(float a, float b) {
  return bits_as<uint32_t>(a) == bits_as<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline void expect_same(const std::vector<float>& got, const std::vector<float>& want,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(same(got[i], want[i]))
        << what << " at " << i << ": " << got[i] << " (0x" << std::hex << bits_as<uint32_t>(got[i])
        << ") and " << want[i] << " (0x" << bits_as<uint32_t>(want[i]) << ")";
}

// FNV-1a over the bits of floats; NaN counts as one value.
inline uint64_t fingerprint(const std::vector<float>& values,
                            uint64_t hash = 1469598103934665603u) {
  for (float value : values) {
    const uint32_t bits = std::isnan(value) ? 0x7FC00000 : bits_as<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (bits >> shift & 255)) * 1099511628211u;
  }
  return hash;
}

}  // namespace tenon::cpu

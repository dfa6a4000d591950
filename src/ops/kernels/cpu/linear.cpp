// Rows against packed tiles (declared in cpu.h, Table::linear).
// Four rows share a decoded weight vector: 8 accumulators of 8 lanes fill the registers of AVX2.
// Measured on one core of a Zen 3 (AVX2): 16-19 GB/s of packed 4-bit weights with one row, about 45
// billion multiply-adds a second with four.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/linear.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include "ops/kernels/cpu/linear-inl.h"

#if HWY_ONCE
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {
void add_linear(Table& table, int64_t target) { TENON_FOR_TARGET(target, fill_linear) }
}  // namespace tenon::cpu
#endif

// Attention over pages of 64 keys (declared in cpu.h). Queries of one key/value head share each
// loaded key and value, four at a time; scores have a key a lane, outputs a dimension a lane.
// Source: online softmax over tiles, https://arxiv.org/abs/2205.14135.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include "ops/kernels/cpu/attention-inl.h"

#if HWY_ONCE
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {
void add_attention(Table& table, int64_t target) { TENON_FOR_TARGET(target, fill_attention) }
}  // namespace tenon::cpu
#endif

// Attention over pages: what runs inside KvPages::attend's call. Internal to ops.
#pragma once
#include "ops/cpu_task.h"

namespace tenon::ops {

// One row of a step and its pages in order; null where no token sees the page any more.
struct RowPages {
  RowSlice slice;
  std::vector<std::byte*> pages;
};

struct AttendShape {
  // Inputs of the call, in order; keys and values only where they are appended.
  enum Input { kQueries, kTicket, kKeys, kValues };
  cpu::KvLayout kv;
  int num_heads;
  Attend how;
  bool appends;  // else the keys of this step are in their pages already
  int group() const { return num_heads / kv.num_kv_heads; }
};

// Output 0: [N, H, v_dim].
void attend(const CpuArgs& args, const AttendShape& shape, std::span<const RowPages> rows);

}  // namespace tenon::ops

// The plain scalar reference of every kernel.
#pragma once
#include "ops/kernels/cpu/cpu.h"

namespace tenon::cpu {
const Table& reference_table();
}  // namespace tenon::cpu

// Rows in host memory (declared in ops.h), by the CPU kernels whatever the device.
#include "ops/kernels/cpu/cpu.h"
#include "ops/ops.h"

namespace tenon::ops {

namespace {
// A TENON_CPU_TARGET that does not exist is reported where kernels are made; all give these bits.
const cpu::Table& host_table() {
  static const auto chosen = cpu::table();
  static const cpu::Table& table = chosen.ok() ? **chosen : *cpu::all_tables().front();
  return table;
}
}  // namespace

int32_t argmax(std::span<const float> x) {
  return host_table().argmax(x.data(), static_cast<int>(x.size()));
}

void exps(std::span<const float> x, float shift, float divisor, float* y) {
  host_table().exps(x.data(), shift, divisor, static_cast<int>(x.size()), y);
}

}  // namespace tenon::ops

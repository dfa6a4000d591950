#include "ops/kernels/cpu/reference.h"
namespace tenon::cpu {
const Table& reference_table() {
  static Table table{};
  table.name = "reference";
  return table;
}
}  // namespace tenon::cpu

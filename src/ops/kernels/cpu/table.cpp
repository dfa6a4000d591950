// Choosing an instruction set: what the machine has, or what TENON_CPU_TARGET says.
#include <cstdlib>
#include <cstring>

#include "ops/kernels/cpu/reference.h"
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {

namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt");
}
bool has_avx3() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd");
}
bool has_avx3_dl() {
  return has_avx3() && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
         __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bitalg") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("vaes") &&
         __builtin_cpu_supports("gfni");
}
#endif
bool always() { return true; }

struct Target {
  int64_t bit;
  const char* name;
  bool (*runs_here)();
};
// Best first. The last is the baseline that every machine of the architecture has.
constexpr Target kTargets[] = {
#if defined(__x86_64__)
    {HWY_AVX3_DL, "avx3_dl", has_avx3_dl},
    {HWY_AVX3, "avx3", has_avx3},
    {HWY_AVX2, "avx2", has_avx2},
    {HWY_SSE4, "sse4", always},
#else
    {HWY_NEON, "neon", always},
#endif
};

std::vector<Table> compiled_tables() {
  std::vector<Table> tables;
  for (const Target& target : kTargets) {
    if (!target.runs_here()) continue;
    Table table{};
    add_rows(table, target.bit);
    add_activations(table, target.bit);
    add_scores(table, target.bit);
    add_linear(table, target.bit);
    add_attention(table, target.bit);
    add_recurrent(table, target.bit);
    table.name = target.name;
    if (table.linear != nullptr) tables.push_back(table);  // a compiler may lack a target
  }
  return tables;
}

const std::vector<Table>& tables() {
  static const std::vector<Table> kTables = compiled_tables();
  return kTables;
}

Result<const Table*> choose() {
  const char* wanted = std::getenv("TENON_CPU_TARGET");
  if (wanted == nullptr || *wanted == '\0') return &tables().front();
  std::string known;
  for (const Table* t : all_tables()) {
    if (std::strcmp(t->name, wanted) == 0) return t;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", t->name);
  }
  return invalid("TENON_CPU_TARGET {}: this machine has {}", wanted, known);
}

}  // namespace

Result<const Table*> table() {
  static const Result<const Table*> kChosen = choose();
  return kChosen;
}

std::vector<const Table*> all_tables() {
  std::vector<const Table*> all{&reference_table()};
  for (const Table& t : tables()) all.push_back(&t);
  return all;
}

}  // namespace tenon::cpu

// Instruction sets: which there are, and how a kernel file adds its functions to a Table.
// Highway compiles each kernel file once a target; choosing is ours, so that nothing but its
// headers is needed and no process-wide state decides.
#pragma once
#include <hwy/detect_targets.h>

#include "ops/kernels/cpu/cpu.h"

namespace tenon::cpu {

// `target` is one of Highway's HWY_* bits.
void add_rows(Table& table, int64_t target);         // rows.cpp
void add_activations(Table& table, int64_t target);  // activations.cpp
void add_scores(Table& table, int64_t target);       // scores.cpp
void add_linear(Table& table, int64_t target);       // linear.cpp
void add_attention(Table& table, int64_t target);    // attention.cpp
void add_recurrent(Table& table, int64_t target);    // recurrent.cpp

}  // namespace tenon::cpu

// One case a compiled target: calls that target's `fill(table)`.
#if HWY_TARGETS & HWY_SSE4
#define TENON_CASE_SSE4(fill) \
  case HWY_SSE4: return N_SSE4::fill(table);
#else
#define TENON_CASE_SSE4(fill)
#endif
#if HWY_TARGETS & HWY_AVX2
#define TENON_CASE_AVX2(fill) \
  case HWY_AVX2: return N_AVX2::fill(table);
#else
#define TENON_CASE_AVX2(fill)
#endif
#if HWY_TARGETS & HWY_AVX3
#define TENON_CASE_AVX3(fill) \
  case HWY_AVX3: return N_AVX3::fill(table);
#else
#define TENON_CASE_AVX3(fill)
#endif
#if HWY_TARGETS & HWY_AVX3_DL
#define TENON_CASE_AVX3_DL(fill) \
  case HWY_AVX3_DL: return N_AVX3_DL::fill(table);
#else
#define TENON_CASE_AVX3_DL(fill)
#endif
#if HWY_TARGETS & HWY_NEON
#define TENON_CASE_NEON(fill) \
  case HWY_NEON: return N_NEON::fill(table);
#else
#define TENON_CASE_NEON(fill)
#endif
#define TENON_FOR_TARGET(target, fill)                                                     \
  switch (target) {                                                                        \
    TENON_CASE_SSE4(fill)                                                                  \
    TENON_CASE_AVX2(fill)                                                                  \
    TENON_CASE_AVX3(fill) TENON_CASE_AVX3_DL(fill) TENON_CASE_NEON(fill) default : return; \
  }

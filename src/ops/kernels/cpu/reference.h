// The plain scalar reference of every kernel: the door's formulas written down once more, as loops.
// TENON_CPU_TARGET=reference runs a whole model on it, slowly.
#pragma once
#include "ops/kernels/cpu/cpu.h"

namespace tenon::cpu {

const Table& reference_table();

namespace reference {
void gated(Activation act, const float* gate, const float* up, int n, float* y);
void activate(Activation act, const float* x, int n, float* y);
void sigmoid_gate(const float* gate, const float* x, int n, float* y);
void softcap(float cap, const float* x, int n, float* y);
void softmax(const float* x, int n, float* y);
void exps(const float* x, float shift, float divisor, int n, float* y);
int32_t argmax(const float* x, int n);
void attend(const AttendArgs& args);
void merge(float* max, float* sum, float* values, float part_max, float part_sum,
           const float* part_values, int v_dim);
void finish(float sum, const float* values, int v_dim, float* out);
void store_token(const KvLayout& layout, std::byte* page, int slot, const float* k, const float* v);
void linear(const LinearArgs& args);
void delta(const DeltaArgs& args);
void delta_gates(const float* a, const float* b, const float* a_log, const float* dt_bias, int n,
                 float* decay, float* beta);
void conv(const float* const* rows, const float* weights, int taps, int n, float* y);
}  // namespace reference

}  // namespace tenon::cpu

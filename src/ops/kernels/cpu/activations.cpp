// Gates and activations of single rows (declared in cpu.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/activations.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include "ops/kernels/cpu/cpu.h"
#include "ops/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenon::cpu::HWY_NAMESPACE {

inline void gated(Activation act, const float* gate, const float* up, int n, float* y) {
  switch (act) {
    case Activation::silu:
      return map2(gate, up, n, y, [](VF g, VF u) { return hn::Mul(silu(g), u); });
    case Activation::gelu:
      return map2(gate, up, n, y, [](VF g, VF u) { return hn::Mul(gelu(g), u); });
    case Activation::gelu_tanh:
      return map2(gate, up, n, y, [](VF g, VF u) { return hn::Mul(gelu_tanh(g), u); });
  }
}

inline void activate(Activation act, const float* x, int n, float* y) {
  switch (act) {
    case Activation::silu: return map2(x, x, n, y, [](VF v, VF) { return silu(v); });
    case Activation::gelu: return map2(x, x, n, y, [](VF v, VF) { return gelu(v); });
    case Activation::gelu_tanh: return map2(x, x, n, y, [](VF v, VF) { return gelu_tanh(v); });
  }
}

inline void sigmoid_gate(const float* gate, const float* x, int n, float* y) {
  map2(gate, x, n, y, [](VF g, VF v) { return hn::Mul(v, sigmoid(g)); });
}

inline void fill_activations(Table& table) {
  table.gated = gated;
  table.activate = activate;
  table.sigmoid_gate = sigmoid_gate;
}

}  // namespace tenon::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/kernels/cpu/target.h"

namespace tenon::cpu {
void add_activations(Table& table, int64_t target) { TENON_FOR_TARGET(target, fill_activations) }
}  // namespace tenon::cpu
#endif

#include "ops/kernels/cpu/math_reference.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

namespace {

float apply(Activation act, float x) {
  switch (act) {
    case Activation::silu: return silu(x);
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
  }
  return x;
}

}  // namespace

void gated(Activation act, const float* gate, const float* up, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = apply(act, gate[i]) * up[i];
}

void activate(Activation act, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = apply(act, x[i]);
}

void sigmoid_gate(const float* gate, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = x[i] * sigmoid(gate[i]);
}

}  // namespace tenon::cpu::reference

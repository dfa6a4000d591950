#include <cmath>

#include "ops/kernels/cpu/math_reference.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

void delta(const DeltaArgs& a) {
  for (int dim = 0; dim < a.v_dim; ++dim) {
    const auto state = [&](int k) -> float& {
      return a.state[static_cast<size_t>(k) * a.v_dim + dim];
    };
    float seen = 0;
    for (int k = 0; k < a.k_dim; ++k) seen = std::fma(state(k) * a.decay, a.key[k], seen);
    const float delta = (a.value[dim] - seen) * a.beta;
    float y = 0;
    for (int k = 0; k < a.k_dim; ++k) {
      state(k) = std::fma(delta, a.key[k], state(k) * a.decay);
      y = std::fma(state(k), a.query[k], y);
    }
    a.y[dim] = y;
  }
}

void delta_gates(const float* a, const float* b, const float* a_log, const float* dt_bias, int n,
                 float* decay, float* beta) {
  for (int i = 0; i < n; ++i) {
    decay[i] = exp(-(exp(a_log[i]) * softplus(a[i] + dt_bias[i])));
    beta[i] = sigmoid(b[i]);
  }
}

void conv(const float* const* rows, const float* weights, int taps, int n, float* y) {
  for (int at = 0; at < n; ++at) {
    float sum = 0;
    for (int i = 0; i < taps; ++i)
      sum = std::fma(rows[i][at], weights[static_cast<size_t>(i) * n + at], sum);
    y[at] = silu(sum);
  }
}

}  // namespace tenon::cpu::reference

#include <cmath>

#include "ops/kernels/cpu/math_reference.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

void softcap(float cap, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = cap * tanh(x[i] / cap);
}

void softmax(const float* x, int n, float* y) {
  float max = -HUGE_VALF;
  for (int i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    y[i] = exp(x[i] - max);
    lanes[i % kLanes] += y[i];
  }
  const float sum = tree(lanes);
  for (int i = 0; i < n; ++i) y[i] /= sum;
}

void exps(const float* x, float shift, float divisor, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = exp((x[i] - shift) / divisor);
}

int32_t argmax(const float* x, int n) {
  int32_t best = -1;
  for (int i = 0; i < n; ++i) {
    if (std::isnan(x[i])) return -1;
    if (x[i] > (best < 0 ? -HUGE_VALF : x[best])) best = i;
  }
  return best;
}

}  // namespace tenon::cpu::reference

#include "ops/kernels/cpu/routing.h"

#include <cmath>

namespace tenon::cpu {

namespace {
// Whether `a` goes before `b`, which has the lower index.
bool beats(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }
}  // namespace

void top_k(const float* x, int n, int k, int* ids) {
  for (int i = 0; i < n; ++i) {
    int at = i < k ? i : k;  // as many are chosen so far
    if (at == k && (k == 0 || !beats(x[i], x[ids[k - 1]]))) continue;
    if (at == k) --at;  // the last makes room
    for (; at > 0 && beats(x[i], x[ids[at - 1]]); --at) ids[at] = ids[at - 1];
    ids[at] = i;
  }
}

}  // namespace tenon::cpu

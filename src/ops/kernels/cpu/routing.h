// Which experts a token goes to: the choice among a router's scores. Thread: any. No target needed:
// comparisons alone, over some hundred scores.
#pragma once

namespace tenon::cpu {

// The indices of the k largest of x[n], largest first, the lower index first on ties (and -0 equals
// 0). NaN is chosen after all numbers, by ascending index. ids [k], k <= n.
void top_k(const float* x, int n, int k, int* ids);

}  // namespace tenon::cpu

#include "ops/cpu_rows.h"

namespace tenon::ops {

void CpuNorm::apply(const CpuArgs& a, const float* x, int n, float* y) const {
  const float* w = weight < 0 ? nullptr : a.x(weight);
  if (centered)
    a.context.table->layer_norm(x, w, bias < 0 ? nullptr : a.x(bias), eps, n, y);
  else
    a.context.table->rms_norm(x, w, eps, n, y);
}

void CpuJoin::apply(const CpuArgs& a, const float* residual, float* y, int n) const {
  if (norm.present) norm.apply(a, y, n, y);
  if (scale) a.context.table->scale(*scale, y, n, y);
  if (adds) a.context.table->add(residual, y, n, y);
}

CpuNorm CpuInputs::add(const std::optional<Norm>& norm) {
  if (!norm) return {};
  CpuNorm use{true, -1, -1, norm->eps, norm->centered};
  if (norm->weight) use.weight = add(*norm->weight);
  if (norm->bias) use.bias = add(*norm->bias);
  return use;
}

CpuJoin CpuInputs::add(const Join& join) { return {add(join.norm), join.scale, join.adds}; }

Operand norm_rows(const CpuArgs& a, const float* x, const CpuNorm& norm, int num_rows, int in,
                  std::span<const cpu::PackedMatrix* const> matrices) {
  CpuContext& c = a.context;
  Operand operand(c, num_rows, in, matrices);
  float* normed =
      norm.present ? c.scratch.take<float>(static_cast<size_t>(num_rows) * in) : nullptr;
  spread(c, num_rows, row_cost_ns(norm.present ? 3 * in : in), [&](int r) {
    const size_t at = static_cast<size_t>(r) * in;
    if (norm.present) norm.apply(a, x + at, in, normed + at);
    operand.fill(r, (norm.present ? normed : x) + at);
  });
  return operand;
}

void join_rows(const CpuArgs& a, const CpuJoin& join, const float* residual, float* y, int num_rows,
               int n) {
  const int cost = row_cost_ns(n) / 4 + (join.norm.present ? row_cost_ns(n) : 0);
  spread(a.context, num_rows, cost, [&](int r) {
    const size_t at = static_cast<size_t>(r) * n;
    join.apply(a, residual + at, y + at, n);
  });
}

}  // namespace tenon::ops

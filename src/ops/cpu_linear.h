// Activations against packed matrices, spread over the pool. Runs inside a CpuCall.
// The parts of the work may be computed by any thread in any order: no result shows it.
#pragma once
#include "ops/cpu_task.h"

namespace tenon::ops {

// Rows [num_rows, in] in every form that a few matrices want: as floats, and quantized for each
// group size among them.
class Operand {
 public:
  Operand(CpuContext& context, int num_rows, int in,
          std::span<const cpu::PackedMatrix* const> matrices);
  // Quantizes one row. `x` must stay valid: float codes read it again.
  void fill(int row, const float* x);
  int num_rows() const { return num_rows_; }
  const cpu::QuantizedRow* quantized(const cpu::Packing& packing) const;
  const float* floats() const { return x_; }
  int in() const { return in_; }

  // For float codes all rows must be one block, `in` apart; set by the first row's fill.
 private:
  struct Form {
    int group;
    cpu::QuantizedRow* rows;
  };
  const cpu::Table* table_;
  int num_rows_, in_;
  const float* x_ = nullptr;
  std::vector<Form> forms_;
};

struct Product {
  const cpu::PackedMatrix* w;
  float* out;  // [num_rows, stride]
  int stride;
};
// out = operand @ w^T (+ bias) for each product.
void multiply(CpuContext& context, const Operand& operand, std::span<const Product> products);

// work(i) for i in [0, n): on the pool when there is enough of it, else here. `cost_ns`: of one i.
template <class Work>
void spread(CpuContext& context, int n, int cost_ns, const Work& work) {
  constexpr int kWorthwhileNs = 4000;  // a fork and a join cost one or two microseconds
  if (static_cast<int64_t>(n) * cost_ns < kWorthwhileNs) {
    for (int i = 0; i < n; ++i) work(i);
  } else {
    context.pool.run(n, work);
  }
}

}  // namespace tenon::ops

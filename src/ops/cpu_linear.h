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
  // Row i of the new operand is row rows[i] of this one.
  Operand gather(CpuContext& context, std::span<const int> rows) const;
  const cpu::QuantizedRow* quantized(const cpu::Packing& packing) const;
  const float* floats() const { return x_; }
  int in() const { return in_; }

 private:
  struct Form {
    int group;
    cpu::QuantizedRow* rows;
  };
  const cpu::Table* table_;
  int num_rows_, in_;
  bool has_float_codes_ = false;  // of some matrix: then all rows must be one block, `in_` apart
  const float* x_ = nullptr;  // set by the first row's fill
  std::vector<Form> forms_;
};

struct Product {
  const cpu::PackedMatrix* w;
  float* out;  // [operand's num_rows, stride]
  int stride;
  int first_row = 0, num_rows = -1;  // of the operand and of out; -1: all
};
// out = operand @ w^T (+ bias) for each product, in its rows.
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

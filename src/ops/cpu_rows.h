// Parts of the CPU kernel family's calls: which of a call's inputs are a norm's weights, and loops
// over rows. Internal to ops.
#pragma once
#include "ops/cpu_linear.h"

namespace tenon::ops {

// What a row-wise operation costs, roughly: decides whether it is worth a fork.
inline int row_cost_ns(int elements) { return elements; }

class CpuMatrix final : public Matrix {
 public:
  explicit CpuMatrix(std::shared_ptr<const cpu::PackedMatrix> packed_) : packed(packed_) {
    out = packed->out;
    in = packed->in;
    bytes = packed->bytes();
  }
  const std::shared_ptr<const cpu::PackedMatrix> packed;
};
using PackedPtr = std::shared_ptr<const cpu::PackedMatrix>;
inline PackedPtr packed_of(const Matrix& m) { return static_cast<const CpuMatrix&>(m).packed; }
inline PackedPtr packed_of(const MatrixPtr& m) { return m ? packed_of(*m) : nullptr; }

inline cpu::Activation cpu_activation(Activation act) {
  switch (act) {
    case Activation::silu: return cpu::Activation::silu;
    case Activation::gelu: return cpu::Activation::gelu;
    case Activation::gelu_tanh: break;
  }
  return cpu::Activation::gelu_tanh;
}

// A norm inside a call: where its weights are among the inputs.
struct CpuNorm {
  bool present = false;  // else rows pass as they are
  int weight = -1, bias = -1;
  float eps = 0;
  bool centered = false;
  // y = norm(x); y may be x
  void apply(const CpuArgs& a, const float* x, int n, float* y) const;
};

struct CpuJoin {
  CpuNorm norm;
  std::optional<float> scale;
  bool adds = true;
  // y = residual + scale * norm(y), in place
  void apply(const CpuArgs& a, const float* residual, float* y, int n) const;
};

// The inputs of a call, numbered as they are added.
struct CpuInputs {
  std::vector<mx::array> arrays;
  int add(const mx::array& x) {
    arrays.push_back(x);
    return static_cast<int>(arrays.size()) - 1;
  }
  CpuNorm add(const std::optional<Norm>& norm);
  CpuJoin add(const Join& join);
};

// Rows of x [num_rows, in], normed, as the operand of `matrices`.
Operand norm_rows(const CpuArgs& a, const float* x, const CpuNorm& norm, int num_rows, int in,
                  std::span<const cpu::PackedMatrix* const> matrices);
// y [num_rows, n] joined with the residual, in place.
void join_rows(const CpuArgs& a, const CpuJoin& join, const float* residual, float* y, int num_rows,
               int n);

}  // namespace tenon::ops

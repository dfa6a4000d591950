// Kernel family `mlx`: MLX's stock ops in mlx-lm's order, so that logits are bit-equal to mlx-lm
// 0.32.2 on the same device (fidelity tier L1). Results may depend on shapes where a stock op's do.
// Source: mlx-lm's models/llama.py, activations.py, rope_utils.py; mlx.nn's Linear and
// QuantizedLinear.
#pragma once
#include "ops/ops.h"

namespace tenon::ops {

class MlxKernels final : public Kernels {
 public:
  const char* name() const override { return "mlx"; }
  MatrixPtr load_matrix(const LinearSource& source, mx::Dtype dtype) const override;
  mx::array load_vector(const WeightView& view, mx::Dtype dtype) const override;
  mx::array embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const override;
  mx::array rms_norm(const mx::array& x, const RmsNorm& norm) const override;
  mx::array linear(const mx::array& x, const Matrix& w) const override;
  mx::array linear_add(const mx::array& x, const Matrix& w,
                       const mx::array& residual) const override;
  Qkv project_qkv(const mx::array& x, const QkvProjection& projection, Rows rows,
                  const Rope& rope) const override;
  mx::array norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                         const GatedMlp& mlp) const override;
  Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape&) const override {
    return std::shared_ptr<KvPages>();
  }
};

}  // namespace tenon::ops

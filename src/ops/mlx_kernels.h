// Kernel family `mlx`: MLX's stock ops in mlx-lm's order, so that logits are bit-equal to mlx-lm
// 0.32.2 on the same device (fidelity tier L1). Results may depend on shapes where a stock op's do.
// Source: mlx-lm's models/*.py, switch_layers.py, gated_delta.py, rope_utils.py; mlx.nn's layers.
// Files: mlx_matrix (weights, products, norms), mlx_kernels (attention, feed-forward), mlx_moe,
// mlx_delta.
#pragma once
#include "ops/ops.h"

namespace tenon::ops {

class MlxKernels final : public Kernels {
 public:
  const char* name() const override { return "mlx"; }
  MatrixPtr load_matrix(const LinearSource& source, mx::Dtype dtype) const override;
  mx::array load_vector(const WeightView& view, mx::Dtype dtype) const override;
  ExpertsPtr load_experts(std::span<const LinearSource> experts, mx::Dtype dtype) const override;

  mx::array embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const override;
  mx::array norm(const mx::array& x, const Norm& norm) const override;
  mx::array linear(const mx::array& x, const Matrix& w) const override;
  mx::array gate(Activation act, const mx::array& gate, const mx::array& x) const override;
  mx::array softcap(const mx::array& x, float cap) const override;
  Qkv project_qkv(const mx::array& x, const QkvProjection& projection, Rows rows,
                  const Rope* rope) const override;
  mx::array linear_add(const mx::array& x, const Matrix& w, const mx::array& residual,
                       const Join& join, const mx::array* gate) const override;
  mx::array join(const mx::array& y, const mx::array& residual, const Join& join) const override;
  mx::array feed_forward(const mx::array& x, const FeedForward& block) const override;
  mx::array feed_forward(const mx::array& x, const Moe& block) const override;

  DeltaInputs project_delta(const mx::array& x, const DeltaMixer& mixer) const override;
  mx::array advance_delta(const DeltaInputs& inputs, const DeltaMixer& mixer, Rows rows,
                          std::span<std::optional<DeltaState>> states) const override;
  mx::array finish_delta(const mx::array& y, const mx::array& z, const DeltaMixer& mixer,
                         const mx::array& residual) const override;

  Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape&) const override {
    return std::shared_ptr<KvPages>();
  }
};

}  // namespace tenon::ops

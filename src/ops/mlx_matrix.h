// What the `mlx` kernel family holds of weights, and its linear products. Internal to ops.
#pragma once
#include "ops/ops.h"

namespace tenon::ops {

// Dense, or quantized when bits > 0. A stack of experts has a leading axis X everywhere.
struct MlxWeights {
  mx::array weight;  // [out, in], or packed uint32
  std::optional<mx::array> scales, biases;
  std::optional<mx::array> bias;  // [out]
  int bits = 0;
  int group_size = 0;
  QuantMode mode = QuantMode::affine;

  int num_out() const { return weight.shape(-2); }
  int num_in() const { return bits > 0 ? scales->shape(-1) * group_size : weight.shape(-1); }
  std::vector<mx::array> arrays() const;
  uint64_t bytes() const;
};

struct MlxMatrix final : Matrix {
  explicit MlxMatrix(MlxWeights weights);
  const MlxWeights w;
};
struct MlxExperts final : Experts {
  explicit MlxExperts(MlxWeights weights);
  const MlxWeights w;
};
inline const MlxWeights& weights_of(const Matrix& m) { return static_cast<const MlxMatrix&>(m).w; }
inline const MlxWeights& weights_of(const Experts& e) {
  return static_cast<const MlxExperts&>(e).w;
}

// Throws "[load] ..." where parts do not fit.
MlxWeights load_mlx_weights(const LinearSource& source, mx::Dtype dtype);
MlxWeights load_mlx_experts(std::span<const LinearSource> experts, mx::Dtype dtype);

// x @ W^T (+ bias)
mx::array mlx_linear(const mx::array& x, const MlxWeights& w);
// x [..., 1, in] against the experts that `ids` names: one matrix for each of its entries.
mx::array mlx_gather_linear(const mx::array& x, const MlxWeights& w, const mx::array& ids,
                            bool sorted);
mx::array mlx_norm(const mx::array& x, const Norm& norm);
mx::array mlx_activate(Activation act, const mx::array& x);
mx::array mlx_join(const mx::array& y, const mx::array& residual, const Join& join);

}  // namespace tenon::ops

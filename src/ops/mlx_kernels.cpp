#include "ops/mlx_kernels.h"

#include <cmath>
#include <stdexcept>

#include "ops/mlx_matrix.h"

namespace tenon::ops {

namespace {

// Rotates one row: x [1, H, T, D], first position `offset`.
mx::array rope_row(const mx::array& x, int offset, const Rope& rope) {
  std::optional<float> base = rope.base;
  if (rope.dynamic_max_positions > 0) {
    const double longest = std::max(x.shape(2) + offset, rope.dynamic_max_positions);
    const double growth =
        rope.dynamic_factor * longest / rope.dynamic_max_positions - (rope.dynamic_factor - 1);
    base = static_cast<float>(*rope.base * std::pow(growth, rope.dims / (rope.dims - 2.0)));
  }
  return mx::fast::rope(x, rope.dims, rope.traditional, base, rope.scale, offset, rope.freqs);
}

// Multiplies the rotated dims by the spec's input scale.
mx::array scale_rotated(const mx::array& x, const Rope& rope) {
  const int head_dim = x.shape(-1);
  if (rope.dims == head_dim) return x * scalar_like(rope.input_scale, x);
  auto parts = mx::split(x, mx::Shape{rope.dims}, -1);
  return mx::concatenate({parts[0] * scalar_like(rope.input_scale, x), parts[1]}, -1);
}

// x [N, H, D], each row rotated by its own positions.
mx::array rotate_rows(const mx::array& x, Rows rows, const Rope& rope) {
  const mx::array scaled = rope.input_scale == 1.0f ? x : scale_rotated(x, rope);
  std::vector<mx::array> parts;
  for (const RowSlice& row : rows) {
    const mx::array slice = mx::slice(scaled, {row.start, 0, 0},
                                      {row.start + row.len, scaled.shape(1), scaled.shape(2)});
    const mx::array heads_first = mx::expand_dims(mx::transpose(slice, {1, 0, 2}), 0);
    const mx::array rotated = rope_row(heads_first, row.offset, rope);
    parts.push_back(mx::transpose(mx::squeeze(rotated, 0), {1, 0, 2}));
  }
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

// y [N, H*D] as heads, normed.
mx::array split_heads(const mx::array& y, int count, const std::optional<Norm>& norm,
                      bool norm_spans_heads) {
  const mx::Shape shape{y.shape(0), count, y.shape(1) / count};
  if (!norm) return mx::reshape(y, shape);
  return norm_spans_heads ? mx::reshape(mlx_norm(y, *norm), shape)
                          : mlx_norm(mx::reshape(y, shape), *norm);
}

}  // namespace

MatrixPtr MlxKernels::load_matrix(const LinearSource& source, mx::Dtype dtype) const {
  return std::make_shared<MlxMatrix>(load_mlx_weights(source, dtype));
}

ExpertsPtr MlxKernels::load_experts(std::span<const LinearSource> experts, mx::Dtype dtype) const {
  return std::make_shared<MlxExperts>(load_mlx_experts(experts, dtype));
}

mx::array MlxKernels::load_vector(const WeightView& view, mx::Dtype dtype) const {
  mx::array v = dense_array(view, dtype);
  mx::eval(v);
  return v;
}

mx::array MlxKernels::embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const {
  const MlxWeights& w = weights_of(table);
  const mx::array rows = mx::take(w.weight, ids, 0);
  if (w.bits == 0) return rows;
  std::optional<mx::array> biases;
  if (w.biases) biases = mx::take(*w.biases, ids, 0);
  // Modes without biases name no dtype; the bfloat16 that MLX takes then holds the same values.
  return mx::dequantize(rows, mx::take(*w.scales, ids, 0), biases, w.group_size, w.bits,
                        quant_mode_name(w.mode), std::nullopt, dtype);
}

mx::array MlxKernels::norm(const mx::array& x, const Norm& norm) const { return mlx_norm(x, norm); }

mx::array MlxKernels::linear(const mx::array& x, const Matrix& w) const {
  return mlx_linear(x, weights_of(w));
}

mx::array MlxKernels::gate(Activation act, const mx::array& gate, const mx::array& x) const {
  return mlx_activate(act, gate) * x;
}

mx::array MlxKernels::softcap(const mx::array& x, float cap) const {
  return mx::tanh(x / scalar_like(cap, x)) * scalar_like(cap, x);
}

Qkv MlxKernels::project_qkv(const mx::array& x, const QkvProjection& p, Rows rows,
                            const Rope* rope) const {
  const mx::array normed = p.norm ? mlx_norm(x, *p.norm) : x;
  const auto turned = [&](const mx::array& heads) {
    return rope ? rotate_rows(heads, rows, *rope) : heads;
  };
  mx::array q = mlx_linear(normed, weights_of(*p.q));
  std::optional<mx::array> gate;
  if (p.gated) {
    const auto halves = mx::split(mx::reshape(q, {x.shape(0), p.num_heads, -1}), 2, -1);
    q = mx::reshape(halves[0], {x.shape(0), -1});
    gate = mx::reshape(halves[1], {x.shape(0), -1});
  }
  q = turned(split_heads(q, p.num_heads, p.q_norm, p.norms_span_heads));
  if (!p.k) return {q, {}, {}, gate};
  const mx::array keys = mlx_linear(normed, weights_of(*p.k));
  const mx::array k = turned(split_heads(keys, p.num_kv_heads, p.k_norm, p.norms_span_heads));
  const mx::array values = p.v ? mlx_linear(normed, weights_of(*p.v)) : keys;
  return {q, k, split_heads(values, p.num_kv_heads, p.v_norm, false), gate};
}

mx::array MlxKernels::linear_add(const mx::array& x, const Matrix& w, const mx::array& residual,
                                 const Join& join, const mx::array* gate) const {
  const mx::array flat = mx::reshape(x, {x.shape(0), -1});
  return mlx_join(mlx_linear(gate ? flat * mx::sigmoid(*gate) : flat, weights_of(w)), residual,
                  join);
}

mx::array MlxKernels::join(const mx::array& y, const mx::array& residual, const Join& join) const {
  return mlx_join(y, residual, join);
}

mx::array MlxKernels::feed_forward(const mx::array& x, const FeedForward& block) const {
  const Mlp& mlp = block.mlp;
  const mx::array normed = block.norm ? mlx_norm(x, *block.norm) : x;
  const mx::array hidden =
      mlp.gate ? gate(mlp.activation, linear(normed, *mlp.gate), linear(normed, *mlp.up))
               : mlx_activate(mlp.activation, linear(normed, *mlp.up));
  return mlx_join(linear(hidden, *mlp.down), x, block.join);
}

}  // namespace tenon::ops

#include "ops/mlx_kernels.h"

#include <cmath>
#include <stdexcept>

#include "ops/block_formats.h"

namespace tenon::ops {

namespace {

// Dense [out, in], or quantized when bits > 0.
class MlxMatrix final : public Matrix {
 public:
  MlxMatrix(mx::array w) : weight(std::move(w)) {}
  mx::array weight;
  std::optional<mx::array> scales, biases;
  std::optional<mx::array> bias;
  int bits = 0;
  int group_size = 0;
  QuantMode mode = QuantMode::affine;
};

const MlxMatrix& as_mlx(const Matrix& m) { return static_cast<const MlxMatrix&>(m); }

std::shared_ptr<MlxMatrix> load_quantized(const LinearSource& source, mx::Dtype dtype) {
  const Format format = source.weight.format;
  if (is_affine_block(format)) {
    AffineTriple t = affine_from_blocks(source.weight);
    auto m = std::make_shared<MlxMatrix>(std::move(t.weight));
    m->scales = mx::astype(t.scales, dtype);
    m->biases = mx::astype(t.biases, dtype);
    m->bits = t.bits;
    m->group_size = kBlockGroup;
    return m;
  }
  auto m = std::make_shared<MlxMatrix>(stored_array(source.weight));
  m->bits = source.bits;
  m->group_size = source.group_size;
  m->mode = source.mode;
  if (source.mode != QuantMode::affine) {
    m->scales = stored_array(source.scales.at(0));
    return m;
  }
  m->scales = dense_array(source.scales.at(0), dtype);
  m->biases = dense_array(source.biases.at(0), dtype);
  return m;
}

mx::array silu(const mx::array& x) { return x * mx::sigmoid(x); }

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

}  // namespace

MatrixPtr MlxKernels::load_matrix(const LinearSource& source, mx::Dtype dtype) const {
  const bool quantized = source.bits > 0 || is_affine_block(source.weight.format);
  auto m = quantized ? load_quantized(source, dtype)
                     : std::make_shared<MlxMatrix>(dense_array(source.weight, dtype));
  if (!source.bias.empty()) m->bias = dense_array(source.bias[0], dtype);
  std::vector<mx::array> all{m->weight};
  for (const auto& part : {m->scales, m->biases, m->bias})
    if (part) all.push_back(*part);
  mx::eval(all);
  for (const auto& part : all) m->bytes += part.nbytes();
  m->out = m->weight.shape(0);
  m->in = quantized ? m->scales->shape(1) * m->group_size : m->weight.shape(1);
  return m;
}

mx::array MlxKernels::load_vector(const WeightView& view, mx::Dtype dtype) const {
  mx::array v = dense_array(view, dtype);
  mx::eval(v);
  return v;
}

mx::array MlxKernels::embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const {
  const MlxMatrix& m = as_mlx(table);
  const mx::array rows = mx::take(m.weight, ids, 0);
  if (m.bits == 0) return rows;
  std::optional<mx::array> biases;
  if (m.biases) biases = mx::take(*m.biases, ids, 0);
  // Modes without biases name no dtype; the bfloat16 that MLX takes then holds the same values.
  return mx::dequantize(rows, mx::take(*m.scales, ids, 0), biases, m.group_size, m.bits,
                        quant_mode_name(m.mode), std::nullopt, dtype);
}

mx::array MlxKernels::rms_norm(const mx::array& x, const RmsNorm& norm) const {
  return mx::fast::rms_norm(x, norm.weight, norm.eps);
}

mx::array MlxKernels::linear(const mx::array& x, const Matrix& w) const {
  const MlxMatrix& m = as_mlx(w);
  if (m.bits == 0) {
    const mx::array wt = mx::transpose(m.weight);
    return m.bias ? mx::addmm(*m.bias, x, wt) : mx::matmul(x, wt);
  }
  const mx::array y = mx::quantized_matmul(x, m.weight, *m.scales, m.biases, true, m.group_size,
                                           m.bits, quant_mode_name(m.mode));
  return m.bias ? y + *m.bias : y;
}

mx::array MlxKernels::linear_add(const mx::array& x, const Matrix& w,
                                 const mx::array& residual) const {
  return residual + linear(mx::reshape(x, {x.shape(0), -1}), w);
}

Qkv MlxKernels::project_qkv(const mx::array& x, const QkvProjection& p, Rows rows,
                            const Rope& rope) const {
  const mx::array normed = rms_norm(x, p.norm);
  const auto heads = [&](const MatrixPtr& w, int count) {
    return mx::reshape(linear(normed, *w), {x.shape(0), count, p.head_dim});
  };
  const mx::array q = heads(p.q, p.num_heads), k = heads(p.k, p.num_kv_heads);
  const mx::array v = heads(p.v, p.num_kv_heads);
  return {rotate_rows(q, rows, rope), rotate_rows(k, rows, rope), v};
}

mx::array MlxKernels::norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                                   const GatedMlp& mlp) const {
  const mx::array normed = rms_norm(x, norm);
  const mx::array gate = silu(linear(normed, *mlp.gate));
  return linear_add(gate * linear(normed, *mlp.up), *mlp.down, x);
}

}  // namespace tenon::ops

#include "ops/mlx_kernels.h"

#include <cmath>
#include <stdexcept>

#include "ops/block_formats.h"

namespace tenon::ops {

namespace {

// Dense [out, in], or an affine triple when bits > 0.
class MlxMatrix final : public Matrix {
 public:
  MlxMatrix(mx::array w) : weight(std::move(w)) {}
  mx::array weight;
  std::optional<mx::array> scales, biases;
  std::optional<mx::array> bias;
  int bits = 0;
  int group_size = 0;
};

const MlxMatrix& as_mlx(const Matrix& m) { return static_cast<const MlxMatrix&>(m); }

std::shared_ptr<MlxMatrix> load_affine(const LinearSource& source, mx::Dtype dtype) {
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
  m->scales = dense_array(source.scales.at(0), dtype);
  m->biases = dense_array(source.biases.at(0), dtype);
  m->bits = source.bits;
  m->group_size = source.group_size;
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

}  // namespace

MatrixPtr MlxKernels::load_matrix(const LinearSource& source, mx::Dtype dtype) const {
  const bool affine = source.bits > 0 || is_affine_block(source.weight.format);
  auto m = affine ? load_affine(source, dtype)
                  : std::make_shared<MlxMatrix>(dense_array(source.weight, dtype));
  if (!source.bias.empty()) m->bias = dense_array(source.bias[0], dtype);
  std::vector<mx::array> all{m->weight};
  for (const auto& part : {m->scales, m->biases, m->bias})
    if (part) all.push_back(*part);
  mx::eval(all);
  for (const auto& part : all) m->bytes += part.nbytes();
  m->out = m->weight.shape(0);
  m->in = affine ? m->scales->shape(1) * m->group_size : m->weight.shape(1);
  return m;
}

mx::array MlxKernels::load_vector(const WeightView& view, mx::Dtype dtype) const {
  mx::array v = dense_array(view, dtype);
  mx::eval(v);
  return v;
}

mx::array MlxKernels::embed(const mx::array& ids, const Matrix& table, mx::Dtype) const {
  const MlxMatrix& m = as_mlx(table);
  const mx::array rows = mx::take(m.weight, ids, 0);
  if (m.bits == 0) return rows;
  return mx::dequantize(rows, mx::take(*m.scales, ids, 0), mx::take(*m.biases, ids, 0),
                        m.group_size, m.bits);
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
  mx::array y = mx::quantized_matmul(x, m.weight, *m.scales, m.biases, true, m.group_size, m.bits);
  return m.bias ? y + *m.bias : y;
}

mx::array MlxKernels::linear_add(const mx::array& x, const Matrix& w,
                                 const mx::array& residual) const {
  return residual + linear(x, w);
}

std::vector<mx::array> MlxKernels::norm_linear(const mx::array& x, const RmsNorm& norm,
                                               std::span<const MatrixPtr> ws) const {
  const mx::array normed = rms_norm(x, norm);
  std::vector<mx::array> out;
  for (const MatrixPtr& w : ws) out.push_back(linear(normed, *w));
  return out;
}

mx::array MlxKernels::norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                                   const GatedMlp& mlp) const {
  const mx::array normed = rms_norm(x, norm);
  const mx::array gate = silu(linear(normed, *mlp.gate));
  return linear_add(gate * linear(normed, *mlp.up), *mlp.down, x);
}

mx::array MlxKernels::rope(const mx::array& x, Rows rows, const Rope& rope) const {
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

Result<std::shared_ptr<const Kernels>> make_kernels(const std::string& name, mx::Device device) {
  static_cast<void>(device);  // the stock ops run on every device
  if (name == "mlx" || name == "auto") return std::shared_ptr<const Kernels>(new MlxKernels);
  if (name == "tenon")
    return unsupported(
        "--kernels tenon: this build has no kernels of its own yet; use mlx or auto");
  return invalid("--kernels {}: use auto, mlx or tenon", name);
}

}  // namespace tenon::ops

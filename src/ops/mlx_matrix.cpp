#include "ops/mlx_matrix.h"

#include <cmath>

#include "ops/block_formats.h"

namespace tenon::ops {

namespace {

MlxWeights load_quantized(const LinearSource& source, mx::Dtype dtype) {
  if (is_affine_block(source.weight.format)) {
    AffineTriple t = affine_from_blocks(source.weight);
    MlxWeights w{std::move(t.weight), {}, {}, {}, t.bits, kBlockGroup, QuantMode::affine};
    w.scales = mx::astype(t.scales, dtype);
    w.biases = mx::astype(t.biases, dtype);
    return w;
  }
  MlxWeights w{stored_array(source.weight), {},         {}, {}, source.bits,
               source.group_size,           source.mode};
  if (source.mode != QuantMode::affine) {
    w.scales = stored_array(source.scales.at(0));
    return w;
  }
  w.scales = dense_array(source.scales.at(0), dtype);
  w.biases = dense_array(source.biases.at(0), dtype);
  return w;
}

mx::array stack_of(const std::vector<MlxWeights>& parts,
                   const std::function<mx::array(const MlxWeights&)>& part) {
  std::vector<mx::array> arrays;
  for (const MlxWeights& w : parts) arrays.push_back(part(w));
  mx::array stacked = mx::stack(arrays, 0);
  mx::eval(stacked);
  return stacked;
}

}  // namespace

std::vector<mx::array> MlxWeights::arrays() const {
  std::vector<mx::array> all{weight};
  for (const auto& part : {scales, biases, bias})
    if (part) all.push_back(*part);
  return all;
}

uint64_t MlxWeights::bytes() const {
  uint64_t total = 0;
  for (const mx::array& part : arrays()) total += part.nbytes();
  return total;
}

MlxMatrix::MlxMatrix(MlxWeights weights) : w(std::move(weights)) {
  out = w.num_out();
  in = w.num_in();
  bytes = w.bytes();
}

MlxExperts::MlxExperts(MlxWeights weights) : w(std::move(weights)) {
  num = w.weight.shape(0);
  out = w.num_out();
  in = w.num_in();
  bytes = w.bytes();
}

MlxWeights load_mlx_weights(const LinearSource& source, mx::Dtype dtype) {
  const bool quantized = source.bits > 0 || is_affine_block(source.weight.format);
  MlxWeights w = quantized ? load_quantized(source, dtype)
                           : MlxWeights{dense_array(source.weight, dtype), {}, {}, {}};
  if (!source.bias.empty()) w.bias = dense_array(source.bias[0], dtype);
  mx::eval(w.arrays());
  return w;
}

MlxWeights load_mlx_experts(std::span<const LinearSource> experts, mx::Dtype dtype) {
  std::vector<MlxWeights> parts;
  for (const LinearSource& source : experts) {
    parts.push_back(load_mlx_weights(source, dtype));
    if (parts.back().bits != parts[0].bits || parts.back().mode != parts[0].mode ||
        parts.back().group_size != parts[0].group_size || parts.back().bias)
      throw std::runtime_error(
          fmt::format("[load] {}: the experts of a layer must be quantized alike, without bias",
                      source.weight.name));
  }
  MlxWeights w{stack_of(parts, [](const MlxWeights& p) { return p.weight; }),
               {},
               {},
               {},
               parts[0].bits,
               parts[0].group_size,
               parts[0].mode};
  if (parts[0].scales) w.scales = stack_of(parts, [](const MlxWeights& p) { return *p.scales; });
  if (parts[0].biases) w.biases = stack_of(parts, [](const MlxWeights& p) { return *p.biases; });
  return w;
}

mx::array mlx_linear(const mx::array& x, const MlxWeights& w) {
  if (w.bits == 0) {
    const mx::array wt = mx::transpose(w.weight);
    return w.bias ? mx::addmm(*w.bias, x, wt) : mx::matmul(x, wt);
  }
  const mx::array y = mx::quantized_matmul(x, w.weight, *w.scales, w.biases, true, w.group_size,
                                           w.bits, quant_mode_name(w.mode));
  return w.bias ? y + *w.bias : y;
}

mx::array mlx_gather_linear(const mx::array& x, const MlxWeights& w, const mx::array& ids,
                            bool sorted) {
  if (w.bits == 0) {
    const mx::array wt = mx::swapaxes(w.weight, -1, -2);
    if (x.dtype() == mx::float32 || mx::default_device() == mx::Device::gpu)
      return mx::gather_mm(x, wt, std::nullopt, ids, sorted);
    // The CPU has gather_mm for float32 alone.
    const auto wide = [](const mx::array& a) { return mx::astype(a, mx::float32); };
    return mx::astype(mx::gather_mm(wide(x), wide(wt), std::nullopt, ids, sorted), x.dtype());
  }
  return mx::gather_qmm(x, w.weight, *w.scales, w.biases, std::nullopt, ids, true, w.group_size,
                        w.bits, quant_mode_name(w.mode), std::nullopt, sorted);
}

mx::array mlx_norm(const mx::array& x, const Norm& norm) {
  return norm.centered ? mx::fast::layer_norm(x, norm.weight, norm.bias, norm.eps)
                       : mx::fast::rms_norm(x, norm.weight, norm.eps);
}

// The forms of mlx.nn: scalars are weak, so they take x's dtype.
mx::array mlx_activate(Activation act, const mx::array& x) {
  const auto number = [&](double v) { return scalar_like(static_cast<float>(v), x); };
  switch (act) {
    case Activation::silu: return x * mx::sigmoid(x);
    case Activation::gelu: return x * (number(1) + mx::erf(x / number(std::sqrt(2.0)))) / number(2);
    case Activation::gelu_tanh: break;
  }
  const mx::array cube = mx::power(x, number(3));
  const mx::array inner = number(std::sqrt(2 / M_PI)) * (x + number(0.044715) * cube);
  return number(0.5) * x * (number(1) + mx::tanh(inner));
}

mx::array mlx_join(const mx::array& y, const mx::array& residual, const Join& join) {
  mx::array out = join.norm ? mlx_norm(y, *join.norm) : y;
  if (join.scale) out = out * scalar_like(*join.scale, out);
  return join.adds ? residual + out : out;
}

}  // namespace tenon::ops

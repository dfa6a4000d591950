// Gated delta layers with stock ops (declared in mlx_kernels.h), each row on its own. Source:
// mlx-lm's qwen3_5.py and gated_delta.py, the form without a Metal kernel. The state is
// [1, Hv, Dv, Dk].
#include <cmath>

#include "ops/mlx_kernels.h"
#include "ops/mlx_matrix.h"

namespace tenon::ops {

namespace {

constexpr double kHeadEps = 1e-6;  // of sum(x^2) of a head's query or key

mx::array rows_of(const mx::array& x, const RowSlice& row) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from[0] = row.start;
  to[0] = row.start + row.len;
  return mx::expand_dims(mx::slice(x, from, to), 0);
}

mx::array silu(const mx::array& x) { return x * mx::sigmoid(x); }

// exp(-exp(f32(A_log)) * softplus(a + dt_bias))
mx::array decay_of(const mx::array& a, const DeltaMixer& mixer) {
  const mx::array biased = a + mixer.dt_bias;
  const mx::array softplus = mx::logaddexp(biased, scalar_like(0, biased));
  return mx::exp(mx::negative(mx::exp(mx::astype(mixer.a_log, mx::float32))) * softplus);
}

// What one token of every head reads and writes.
struct Heads {
  mx::array q, k, v;  // [1, T, Hv, Dk], [1, T, Hv, Dk], [1, T, Hv, Dv]
};

Heads heads_of(const mx::array& convolved, const DeltaShape& s) {
  const int key_dim = s.num_k_heads * s.k_dim, len = convolved.shape(1);
  const auto parts = mx::split(convolved, mx::Shape{key_dim, 2 * key_dim}, -1);
  const double inverse = std::pow(static_cast<double>(s.k_dim), -0.5);
  const float eps = static_cast<float>(kHeadEps * inverse * inverse);
  const auto normed = [&](const mx::array& x, double scale) {
    const mx::array heads =
        mx::fast::rms_norm(mx::reshape(x, {1, len, s.num_k_heads, s.k_dim}), std::nullopt, eps);
    return scalar_like(static_cast<float>(scale), heads) * heads;
  };
  const int repeats = s.num_v_heads / s.num_k_heads;
  const auto repeated = [&](const mx::array& x) {
    return repeats > 1 ? mx::repeat(x, repeats, -2) : x;
  };
  return {repeated(normed(parts[0], inverse * inverse)), repeated(normed(parts[1], inverse)),
          mx::reshape(parts[2], {1, len, s.num_v_heads, s.v_dim})};
}

mx::array token_of(const mx::array& x, int t) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from[1] = t;
  to[1] = t + 1;
  return mx::squeeze(mx::slice(x, from, to), 1);
}

// One step of the delta rule; the state is replaced. -> [1, Hv, Dv]
mx::array step(const Heads& heads, const mx::array& decay, const mx::array& beta, int t,
               mx::array& state) {
  const mx::array q = mx::expand_dims(token_of(heads.q, t), -2);
  const mx::array k = mx::expand_dims(token_of(heads.k, t), -2);
  state = state * mx::expand_dims(token_of(decay, t), {-1, -2});
  const mx::array seen = mx::sum(state * k, -1);
  const mx::array change = (token_of(heads.v, t) - seen) * mx::expand_dims(token_of(beta, t), -1);
  state = state + k * mx::expand_dims(change, -1);
  return mx::astype(mx::sum(state * q, -1), q.dtype());
}

// One row's tokens: qkv [1, T, conv_dim], b and a [1, T, Hv] -> [T, Hv*Dv]
mx::array advance_row(const mx::array& qkv, const mx::array& b, const mx::array& a,
                      const DeltaMixer& mixer, std::optional<DeltaState>& state) {
  const DeltaShape& s = mixer.shape;
  const int len = qkv.shape(1), kept = s.taps - 1;
  const mx::array before =
      state ? mx::expand_dims(state->conv, 0) : mx::zeros({1, kept, s.conv_dim()}, qkv.dtype());
  const mx::array input = mx::concatenate({before, qkv}, 1);
  const mx::array convolved = silu(mx::conv1d(input, mixer.conv, 1, 0, 1, s.conv_dim()));
  const Heads heads = heads_of(convolved, s);
  const mx::array beta = mx::sigmoid(b), decay = decay_of(a, mixer);
  mx::array delta =
      state ? state->delta : mx::zeros({1, s.num_v_heads, s.v_dim, s.k_dim}, mx::float32);
  std::vector<mx::array> ys;
  for (int t = 0; t < len; ++t) ys.push_back(step(heads, decay, beta, t, delta));
  // Taken by index, which always copies: a view would keep the whole input alive.
  const mx::array tail = mx::take(mx::squeeze(input, 0), mx::arange(len, len + kept, 1), 0);
  state = DeltaState{tail, delta};
  return mx::reshape(mx::stack(ys, 1), {len, s.num_v_heads * s.v_dim});
}

}  // namespace

DeltaInputs MlxKernels::project_delta(const mx::array& x, const DeltaMixer& mixer) const {
  const mx::array normed = mlx_norm(x, mixer.norm);
  return {linear(normed, *mixer.qkv), linear(normed, *mixer.z), linear(normed, *mixer.b),
          linear(normed, *mixer.a)};
}

mx::array MlxKernels::advance_delta(const DeltaInputs& in, const DeltaMixer& mixer, Rows rows,
                                    std::span<std::optional<DeltaState>> states) const {
  std::vector<mx::array> out;
  for (size_t i = 0; i < rows.size(); ++i)
    out.push_back(advance_row(rows_of(in.qkv, rows[i]), rows_of(in.b, rows[i]),
                              rows_of(in.a, rows[i]), mixer, states[i]));
  return out.size() == 1 ? out[0] : mx::concatenate(out, 0);
}

mx::array MlxKernels::finish_delta(const mx::array& y, const mx::array& z, const DeltaMixer& mixer,
                                   const mx::array& residual) const {
  const mx::Shape heads{y.shape(0), mixer.shape.num_v_heads, mixer.shape.v_dim};
  const mx::array normed = mlx_norm(mx::reshape(y, heads), mixer.out_norm);
  const mx::array gated =
      silu(mx::astype(mx::reshape(z, heads), mx::float32)) * mx::astype(normed, mx::float32);
  return residual + linear(mx::reshape(mx::astype(gated, y.dtype()), {y.shape(0), -1}), *mixer.out);
}

}  // namespace tenon::ops

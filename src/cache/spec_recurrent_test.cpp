// Cases of the caches specification 9 about the arithmetic of a recurrent row, against its
// definition written out; each names its number. What a whole model computes is compared with
// mlx-lm in tests/parity.
#include <gtest/gtest.h>

#include <cmath>

#include "cache/arrays.h"
#include "cache/test_rows.h"

namespace tenon::cache {
namespace {

std::vector<double> numbers_of(const mx::array& x) {
  const mx::array floats = mx::contiguous(mx::astype(x, mx::float32));
  mx::eval(floats);
  return {floats.data<float>(), floats.data<float>() + floats.size()};
}

// the caches specification 5.2 (steps 2 to 8) and 5.3 written out in float64, for one row from
// nothing.
std::vector<double> written_out(const ops::DeltaInputs& in, const ops::DeltaMixer& mixer) {
  const ops::DeltaShape& s = mixer.shape;
  const int width = s.conv_dim(), num = in.qkv.shape(0), key_dim = s.num_k_heads * s.k_dim;
  const auto qkv = numbers_of(in.qkv), b = numbers_of(in.b), a = numbers_of(in.a),
             taps = numbers_of(mixer.conv), a_log = numbers_of(mixer.a_log),
             dt_bias = numbers_of(mixer.dt_bias);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double inverse = 1 / std::sqrt(static_cast<double>(s.k_dim));
  std::vector<double> state(static_cast<size_t>(s.num_v_heads) * s.v_dim * s.k_dim), out;
  for (int t = 0; t < num; ++t) {
    std::vector<double> c(width);
    for (int ch = 0; ch < width; ++ch) {
      double sum = 0;
      for (int i = 0; i < s.taps; ++i) {
        const int at = t + i - (s.taps - 1);
        if (at >= 0) sum += qkv[static_cast<size_t>(at) * width + ch] * taps[ch * s.taps + i];
      }
      c[ch] = sum * sigmoid(sum);
    }
    for (int h = 0; h < 2 * s.num_k_heads; ++h) {
      double* head = &c[static_cast<size_t>(h) * s.k_dim];
      double squares = 0;
      for (int i = 0; i < s.k_dim; ++i) squares += head[i] * head[i];
      const double norm = 1 / std::sqrt(squares / s.k_dim + 1e-6 / s.k_dim);
      for (int i = 0; i < s.k_dim; ++i)
        head[i] *= norm * (h < s.num_k_heads ? inverse * inverse : inverse);
    }
    for (int hv = 0; hv < s.num_v_heads; ++hv) {
      const int hk = hv / (s.num_v_heads / s.num_k_heads), at = t * s.num_v_heads + hv;
      const double* q = &c[static_cast<size_t>(hk) * s.k_dim];
      const double* k = q + key_dim;
      const double g = std::exp(-std::exp(a_log[hv]) * std::log1p(std::exp(a[at] + dt_bias[hv])));
      for (int i = 0; i < s.v_dim; ++i) {
        double* row = &state[(static_cast<size_t>(hv) * s.v_dim + i) * s.k_dim];
        double seen = 0, y = 0;
        for (int j = 0; j < s.k_dim; ++j) seen += (row[j] *= g) * k[j];
        const double change = (c[2 * key_dim + hv * s.v_dim + i] - seen) * sigmoid(b[at]);
        for (int j = 0; j < s.k_dim; ++j) y += (row[j] += change * k[j]) * q[j];
        out.push_back(y);
      }
    }
  }
  return out;
}

ops::DeltaMixer mixer_for(const ops::DeltaShape& shape) {
  return {.shape = shape,
          .conv = random({shape.conv_dim(), shape.taps, 1}, 31, 0.5f),
          .a_log = random({shape.num_v_heads}, 32),
          .dt_bias = random({shape.num_v_heads}, 33)};
}

class RecurrentRow : public ::testing::TestWithParam<std::string> {};

// Cases 12 and 16: the forward as it is defined, with as many key heads as value heads, half, and a
// third of them.
TEST_P(RecurrentRow, ForwardAsDefined) {
  for (int num_v_heads : {2, 4, 6}) {
    const ops::DeltaShape shape{
        .num_k_heads = 2, .num_v_heads = num_v_heads, .k_dim = 32, .v_dim = 8};
    const ops::DeltaMixer mixer = mixer_for(shape);
    const mx::array none = mx::zeros({1, 1});
    const ops::DeltaInputs in{random({12, shape.conv_dim()}, 34), none,
                              random({12, num_v_heads}, 35), random({12, num_v_heads}, 36)};
    const auto kernels = *ops::make_kernels({.name = GetParam()});
    auto cache = *make_layer_cache({"recurrent", plain_kv(), 0, shape}, *kernels);
    cache->open(0);
    std::vector<double> got;
    for (const auto& [from, to] : {std::pair{0, 5}, {5, 6}, {6, 12}}) {
      const ops::RowSlice row{0, 0, to - from, from};
      const mx::array y = cache->advance(
          {rows_of(in.qkv, from, to), none, rows_of(in.b, from, to), rows_of(in.a, from, to)},
          mixer, std::span(&row, 1));
      settle(*cache, y);
      for (double x : numbers_of(y)) got.push_back(x);
    }
    const std::vector<double> want = written_out(in, mixer);
    ASSERT_EQ(got.size(), want.size());
    double off = 0, largest = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      off = std::max(off, std::abs(got[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    EXPECT_LT(off, 1e-5 * largest) << num_v_heads;
    EXPECT_GT(largest, 1e-3);
  }
}

// Case 14 (and the tail of 24): the last three inputs before the convolution, of which the first
// may be older than the step, or nothing.
TEST_P(RecurrentRow, ConvolutionStateIsTheLastInputs) {
  const Layer layer(Variant{"", GetParam(), {"recurrent", plain_kv(), 0, kDelta}, {}});
  const mx::array padded = mx::concatenate({mx::zeros({3, kDelta.conv_dim()}), layer.qkv}, 0);
  for (int before : {0, 1, 2, 5})
    for (int num : {1, 2, 3, 4}) {
      auto cache = layer.make();
      cache->open(0);
      if (before > 0) layer.feed(*cache, 0, 0, before);
      layer.feed(*cache, 0, before, before + num);
      const int len = before + num;
      EXPECT_EQ(cache->save(0).parts[0].bytes, to_part(rows_of(padded, len, len + 3)).bytes)
          << before << " + " << num;
    }
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentRow, ::testing::Values("mlx", "tenon"),
                         [](const auto& family) -> std::string {
                           return family.param == "mlx" ? "stock" : family.param;
                         });

// Case 15: in bfloat16 the state, the decay and A_log are float32, and beta is not. The convolution
// hands its newest input on, so that the step can be followed; a second token of zeros shows the
// decay alone.
TEST(StockRecurrentRow, DecayIsFloat32WhereActivationsAreNot) {
  const ops::DeltaShape shape{.num_k_heads = 1, .num_v_heads = 2, .k_dim = 32, .v_dim = 8};
  const auto half = [](const mx::array& x) { return mx::astype(x, mx::bfloat16); };
  const auto rounded = [&](const mx::array& x) { return mx::astype(half(x), mx::float32); };
  const float newest_tap[] = {0, 0, 0, 1};
  const ops::DeltaMixer mixer{
      .shape = shape,
      .conv = half(mx::repeat(mx::array(newest_tap, {1, 4, 1}), shape.conv_dim(), 0)),
      .a_log = random({2}, 41),
      .dt_bias = half(random({2}, 42))};
  const mx::array first = half(random({1, shape.conv_dim()}, 43)), zeros = mx::zeros_like(first);
  const mx::array b = half(random({2, 2}, 44)), a = half(random({2, 2}, 45));
  const auto kernels = *ops::make_kernels({.name = "mlx", .dtype = mx::bfloat16});
  const ops::RowSlice row{0, 0, 1, 0};
  std::vector<std::optional<ops::DeltaState>> states{std::nullopt};
  const auto step = [&](const mx::array& qkv, int t) {
    return kernels->advance_delta({qkv, b, rows_of(b, t, t + 1), rows_of(a, t, t + 1)}, mixer,
                                  std::span(&row, 1), states);
  };
  const mx::array y = step(first, 0);
  EXPECT_EQ(y.dtype(), mx::bfloat16);
  EXPECT_EQ(states[0]->conv.dtype(), mx::bfloat16);
  EXPECT_EQ(states[0]->delta.dtype(), mx::float32);
  const mx::array once = mx::reshape(states[0]->delta, {2, 8, 32});
  step(zeros, 1);
  const mx::array twice = mx::reshape(states[0]->delta, {2, 8, 32});

  const mx::array activated = first * mx::sigmoid(first);
  const mx::array key =
      mx::array(std::pow(32.0f, -0.5f), mx::bfloat16) *
      mx::fast::rms_norm(mx::slice(activated, {0, 32}, {1, 64}), std::nullopt, 1e-6f / 32);
  const mx::array values = mx::reshape(mx::slice(activated, {0, 64}, {1, 80}), {2, 8, 1});
  const auto written = [&](const mx::array& beta) {
    return mx::reshape(mx::astype(key, mx::float32), {1, 1, 32}) *
           (mx::astype(values, mx::float32) * mx::reshape(beta, {2, 1, 1}));
  };
  const mx::array opened = rows_of(b, 0, 1);
  EXPECT_TRUE(same_bits(once, written(mx::astype(mx::sigmoid(opened), mx::float32))));
  EXPECT_FALSE(same_bits(once, written(mx::sigmoid(mx::astype(opened, mx::float32)))));

  const mx::array biased = rows_of(a, 1, 2) + mixer.dt_bias;
  const mx::array softplus = mx::logaddexp(biased, mx::zeros_like(biased));
  const auto decay = [&](const mx::array& a_log) {
    return mx::reshape(mx::exp(mx::negative(mx::exp(a_log)) * softplus), {2, 1, 1});
  };
  EXPECT_EQ(softplus.dtype(), mx::bfloat16);
  EXPECT_TRUE(same_bits(twice, once * decay(mixer.a_log)));
  EXPECT_FALSE(same_bits(twice, once * rounded(decay(mixer.a_log))));
  EXPECT_FALSE(same_bits(twice, once * decay(rounded(mixer.a_log))));
}

}  // namespace
}  // namespace tenon::cache

// Gated delta layers: chunks and batches of our kernels leave no trace in a bit, and their numbers
// are those of stock arithmetic.
#include <gtest/gtest.h>

#include "ops/test_weights.h"

namespace tenon::ops {
namespace {

constexpr int kWidth = 96, kTokens = 23;
constexpr DeltaShape kShape{.num_k_heads = 2, .num_v_heads = 6, .k_dim = 32, .v_dim = 20};

DeltaMixer mixer_for(const Kernels& k, const Storage& s) {
  const auto matrix = [&](int out, int in, int seed) {
    return k.load_matrix(random_linear(out, in, s, seed), mx::float32);
  };
  const int value_dim = kShape.num_v_heads * kShape.v_dim;
  return {kShape,
          random_norm(kWidth, 1),
          matrix(kShape.conv_dim(), kWidth, 2),
          matrix(value_dim, kWidth, 3),
          matrix(kShape.num_v_heads, kWidth, 4),
          matrix(kShape.num_v_heads, kWidth, 5),
          random_array({kShape.conv_dim(), kShape.taps, 1}, 6, 0.5f),
          mx::abs(random_array({kShape.num_v_heads}, 7)),
          random_array({kShape.num_v_heads}, 8),
          random_norm(kShape.v_dim, 9),
          k.load_matrix(random_linear(kWidth, value_dim, kStorages[0], 10), mx::float32)};
}

using States = std::vector<std::optional<DeltaState>>;

mx::array layer(const Kernels& k, const DeltaMixer& mixer, const mx::array& x, Rows rows,
                States& states) {
  const DeltaInputs in = k.project_delta(x, mixer);
  return k.finish_delta(k.advance_delta(in, mixer, rows, states), in.z, mixer, x);
}

mx::array alone(const Kernels& k, const DeltaMixer& mixer, const mx::array& x,
                std::optional<DeltaState>& state) {
  const RowSlice row{0, 0, x.shape(0), 0};
  States states{state};
  const mx::array y = layer(k, mixer, x, std::span(&row, 1), states);
  state = states[0];
  mx::eval(y, state->conv, state->delta);
  return y;
}

class Delta : public ::testing::TestWithParam<Storage> {
 protected:
  const std::shared_ptr<const Kernels> ours = *make_kernels({.name = "tenon"});
  const mx::array x = random_array({kTokens, kWidth}, 20);
};

TEST_P(Delta, ChunksEqualTheWhole) {
  const DeltaMixer mixer = mixer_for(*ours, GetParam());
  std::optional<DeltaState> at_end;
  const mx::array whole = alone(*ours, mixer, x, at_end);
  for (int chunk : {1, 2, 3, 5, 16}) {
    std::optional<DeltaState> state;
    for (int at = 0; at < kTokens; at += chunk) {
      const int to = std::min(kTokens, at + chunk);
      EXPECT_TRUE(same_bits(alone(*ours, mixer, rows_of(x, at, to), state), rows_of(whole, at, to)))
          << chunk << " at " << at;
    }
    EXPECT_TRUE(same_bits(state->delta, at_end->delta));
    EXPECT_TRUE(same_bits(state->conv, at_end->conv));
  }
}

TEST_P(Delta, RowsOfABatchEqualRowsAlone) {
  const DeltaMixer mixer = mixer_for(*ours, GetParam());
  std::optional<DeltaState> first, second;
  alone(*ours, mixer, rows_of(x, 0, 6), second);
  States states{std::nullopt, second};
  const RowSlice rows[] = {{0, 0, 9, 0}, {1, 9, 4, 6}};
  const mx::array together =
      layer(*ours, mixer, mx::concatenate({rows_of(x, 3, 12), rows_of(x, 6, 10)}, 0), rows, states);
  EXPECT_TRUE(same_bits(rows_of(together, 0, 9), alone(*ours, mixer, rows_of(x, 3, 12), first)));
  EXPECT_TRUE(same_bits(rows_of(together, 9, 13), alone(*ours, mixer, rows_of(x, 6, 10), second)));
  EXPECT_TRUE(same_bits(states[0]->delta, first->delta));
  EXPECT_TRUE(same_bits(states[1]->delta, second->delta));
  EXPECT_TRUE(same_bits(states[1]->conv, second->conv));
}

TEST_P(Delta, AgreesWithStockArithmetic) {
  const auto stock = *make_kernels({.name = "mlx"});
  std::optional<DeltaState> a, b;
  EXPECT_LT(difference(alone(*ours, mixer_for(*ours, GetParam()), x, a),
                       alone(*stock, mixer_for(*stock, GetParam()), x, b)),
            3e-4f);
}

INSTANTIATE_TEST_SUITE_P(Storages, Delta,
                         ::testing::Values(kStorages[0], kStorages[2], kStorages[3]),
                         [](const auto& storage) { return std::string(storage.param.name); });

}  // namespace
}  // namespace tenon::ops

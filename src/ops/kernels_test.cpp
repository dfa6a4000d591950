// The contract of our CPU kernels, operation by operation and weight format by weight format: a
// row's result does not depend, by one bit, on the rows beside it or on the number of threads; and
// it agrees with MLX's stock arithmetic.
#include <gtest/gtest.h>

#include <functional>

#include "ops/test_weights.h"

namespace tenon::ops {
namespace {

constexpr int kRows = 40, kWidth = 128, kInner = 192, kHeads = 6, kKv = 3, kDim = 32,
              kNumExperts = 9;

std::shared_ptr<const Kernels> kernels(const char* name, int threads = 2) {
  return *make_kernels({.name = name, .threads = threads});
}

// One operation over x [N, kWidth], whose first token is at `offset`, with weights that are the
// same for every kernel family.
using Operation = std::function<mx::array(const Kernels&, const mx::array& x, int offset)>;
struct Case {
  std::string name;
  std::function<Operation(const Kernels&, const Storage&)> load;
};

MatrixPtr matrix(const Kernels& k, const Storage& s, int out, int in, int seed, bool bias = false) {
  return k.load_matrix(random_linear(out, in, s, seed, bias), mx::float32);
}

Rope rope_for(const Kernels& k, int dims) {
  Rope rope;
  rope.dims = dims;
  rope.base = 10000.0f;
  EXPECT_TRUE(k.prepare(rope).ok());
  return rope;
}

mx::array flat(const mx::array& x) { return mx::reshape(x, {x.shape(0), -1}); }

// All that a projection makes, side by side.
Operation qkv_case(const Kernels& k, QkvProjection p, int rope_dims) {
  return [p, rope = rope_for(k, std::max(rope_dims, 2)), rope_dims](
             const Kernels& kernels, const mx::array& x, int offset) {
    const RowSlice row{0, 0, x.shape(0), offset};
    const Qkv qkv = kernels.project_qkv(x, p, std::span(&row, 1), rope_dims ? &rope : nullptr);
    std::vector<mx::array> parts{flat(qkv.q)};
    for (const auto& part : {qkv.k, qkv.v, qkv.gate})
      if (part) parts.push_back(flat(*part));
    return mx::concatenate(parts, 1);
  };
}

QkvProjection projection(const Kernels& k, const Storage& s, int heads_factor = 1) {
  QkvProjection p;
  p.norm = random_norm(kWidth, 1);
  p.q = matrix(k, s, heads_factor * kHeads * kDim, kWidth, 2, true);
  p.k = matrix(k, s, kKv * kDim, kWidth, 3, true);
  p.v = matrix(k, s, kKv * kDim, kWidth, 4, true);
  p.num_heads = kHeads, p.num_kv_heads = kKv, p.head_dim = kDim;
  return p;
}

Operation ff_case(const Kernels& k, const Storage& s, Activation act, bool gated, Join join) {
  FeedForward block;
  block.norm = random_norm(kWidth, 5);
  if (gated) block.mlp.gate = matrix(k, s, kInner, kWidth, 6);
  block.mlp.up = matrix(k, s, kInner, kWidth, 7, !gated);
  block.mlp.down = matrix(k, s, kWidth, kInner, 8, !gated);
  block.mlp.activation = act;
  block.join = std::move(join);
  return [block](const Kernels& kernels, const mx::array& x, int) {
    return kernels.feed_forward(x, block);
  };
}

Operation moe_case(const Kernels& k, const Storage& s, const std::function<void(Moe&)>& change) {
  Moe block;
  block.norm = random_norm(kWidth, 9);
  block.router.gate = matrix(k, kStorages[0], kNumExperts, kWidth, 10);
  block.router.top_k = 3;
  block.gate = k.load_experts(random_experts(kNumExperts, kInner, kWidth, s, 11), mx::float32);
  block.up = k.load_experts(random_experts(kNumExperts, kInner, kWidth, s, 100), mx::float32);
  block.down = k.load_experts(random_experts(kNumExperts, kWidth, kInner, s, 200), mx::float32);
  change(block);
  return [block](const Kernels& kernels, const mx::array& x, int) {
    return kernels.feed_forward(x, block);
  };
}

const std::vector<Case>& cases() {
  using K = const Kernels&;
  using S = const Storage&;
  static const std::vector<Case> all = {
      {"linear",
       [](K k, S s) -> Operation {
         return [w = matrix(k, s, 77, kWidth, 20, true)](K kernels, const mx::array& x, int) {
           return kernels.linear(x, *w);
         };
       }},
      {"linear_add",
       [](K k, S s) -> Operation {
         return [w = matrix(k, s, kWidth, kWidth, 21)](K kernels, const mx::array& x, int) {
           const mx::array gate = mx::negative(x);
           return kernels.linear_add(x, *w, x, {random_norm(kWidth, 22), 0.3f}, &gate);
         };
       }},
      {"norms",
       [](K, S) -> Operation {
         return [](K kernels, const mx::array& x, int) {
           const Norm layer{random_norm(kWidth, 23).weight, 1e-5f, true,
                            random_array({kWidth}, 24)};
           const mx::array y = kernels.norm(kernels.norm(x, layer), {{}, 1e-6f});
           return kernels.softcap(kernels.gate(Activation::gelu, y, x), 3.0f);
         };
       }},
      {"qkv", [](K k, S s) { return qkv_case(k, projection(k, s), kDim); }},
      {"qkv_head_norms",
       [](K k, S s) {
         QkvProjection p = projection(k, s);
         p.q_norm = random_norm(kDim, 25), p.k_norm = random_norm(kDim, 26);
         p.v_norm = Norm{{}, 1e-6f};
         p.v = nullptr;
         return qkv_case(k, p, kDim / 2);
       }},
      {"qkv_whole_norms",
       [](K k, S s) {
         QkvProjection p = projection(k, s);
         p.norm.reset();
         p.q_norm = random_norm(kHeads * kDim, 27), p.k_norm = random_norm(kKv * kDim, 28);
         p.norms_span_heads = true;
         return qkv_case(k, p, 0);
       }},
      {"qkv_gated",
       [](K k, S s) {
         QkvProjection p = projection(k, s, 2);
         p.gated = true;
         return qkv_case(k, p, kDim / 4);
       }},
      {"queries_alone",
       [](K k, S s) {
         QkvProjection p = projection(k, s);
         p.k = p.v = nullptr;
         return qkv_case(k, p, kDim);
       }},
      {"silu_mlp", [](K k, S s) { return ff_case(k, s, Activation::silu, true, {}); }},
      {"gelu_mlp", [](K k, S s) { return ff_case(k, s, Activation::gelu, false, {}); }},
      {"gelu_tanh_mlp",
       [](K k, S s) {
         return ff_case(k, s, Activation::gelu_tanh, true, {random_norm(kWidth, 29), 0.5f, false});
       }},
      {"moe", [](K k, S s) { return moe_case(k, s, [](Moe&) {}); }},
      {"moe_renormalized",
       [](K k, S s) { return moe_case(k, s, [](Moe& m) { m.router.renormalize = true; }); }},
      {"moe_of_chosen",
       [](K k, S s) {
         return moe_case(k, s, [](Moe& m) {
           m.router.weights = Router::Weights::softmax_of_chosen;
           m.router.norm = random_norm(kWidth, 30);
           m.router.expert_scale = mx::abs(random_array({kNumExperts}, 31));
           m.activation = Activation::gelu_tanh;
           m.join = {random_norm(kWidth, 32), {}, false};
         });
       }},
  };
  return all;
}

class OfCase : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {
 protected:
  const Case& test_case() const { return cases()[std::get<0>(GetParam())]; }
  const Storage& storage() const { return kStorages[std::get<1>(GetParam())]; }
  const mx::array x = random_array({kRows, kWidth}, 40);
};

TEST_P(OfCase, RowsDoNotSeeEachOther) {
  const auto k = kernels("tenon");
  const Operation operation = test_case().load(*k, storage());
  const mx::array whole = operation(*k, x, 3);
  for (const auto& [from, to] : {std::pair{0, 1}, {7, 9}, {13, 16}, {20, 36}, {39, 40}})
    EXPECT_TRUE(same_bits(operation(*k, rows_of(x, from, to), 3 + from), rows_of(whole, from, to)))
        << from << " to " << to;
}

TEST_P(OfCase, ThreadsDoNotShow) {
  const auto one = kernels("tenon", 1), five = kernels("tenon", 5);
  EXPECT_TRUE(same_bits(test_case().load(*one, storage())(*one, x, 0),
                        test_case().load(*five, storage())(*five, x, 0)));
}

TEST_P(OfCase, AgreesWithStockArithmetic) {
  const auto ours = kernels("tenon"), stock = kernels("mlx");
  const float off = difference(test_case().load(*ours, storage())(*ours, x, 11),
                               test_case().load(*stock, storage())(*stock, x, 11));
  EXPECT_LT(off, 3e-4f);
}

INSTANTIATE_TEST_SUITE_P(Operations, OfCase,
                         ::testing::Combine(::testing::Range<size_t>(0, cases().size()),
                                            ::testing::Range<size_t>(0, std::size(kStorages))),
                         [](const auto& at) {
                           return cases()[std::get<0>(at.param)].name + "_" +
                                  kStorages[std::get<1>(at.param)].name;
                         });

}  // namespace
}  // namespace tenon::ops

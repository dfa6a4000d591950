// Mixtures of experts with stock ops (declared in mlx_kernels.h). Source: mlx-lm's
// switch_layers.py, qwen3_moe.py and gemma4_text.py.
#include "ops/mlx_kernels.h"
#include "ops/mlx_matrix.h"

namespace tenon::ops {

namespace {

// From so many (token, expert) pairs on, mlx-lm sorts them by expert.
constexpr int kSortedFrom = 64;

struct Chosen {
  mx::array ids;      // [N, top_k]; in argpartition's order
  mx::array weights;  // [N, top_k]
};

Chosen choose(const mx::array& scores, const Router& router) {
  const bool of_all = router.weights == Router::Weights::softmax_of_all;
  const mx::array logits = of_all ? mx::softmax(scores, -1, true) : scores;
  const int num = logits.shape(-1), k = router.top_k;
  mx::array ids = mx::argpartition(logits, num - k, -1);
  ids = mx::slice(ids, {0, num - k}, {ids.shape(0), num});
  mx::array weights = mx::take_along_axis(logits, ids, -1);
  if (!of_all) weights = mx::softmax(weights, -1);
  if (router.renormalize) weights = weights / mx::sum(weights, -1, true);
  if (router.expert_scale) weights = weights * mx::take(*router.expert_scale, ids, 0);
  return {ids, weights};
}

// The gated experts of every (token, expert) pair: x [N, 1, 1, E], ids [N, k] -> [N, k, E]; sorted:
// x [N * k, 1, E], ids [N * k] -> [N * k, E].
mx::array run_experts(const mx::array& x, const Moe& moe, const mx::array& ids, bool sorted) {
  const auto through = [&](const mx::array& in, const ExpertsPtr& experts) {
    return mlx_gather_linear(in, weights_of(*experts), ids, sorted);
  };
  const mx::array up = through(x, moe.up), gate = through(x, moe.gate);
  return mx::squeeze(through(mlx_activate(moe.activation, gate) * up, moe.down), -2);
}

mx::array switch_experts(const mx::array& x, const Moe& moe, const mx::array& ids) {
  const int k = ids.shape(1);
  if (ids.size() < kSortedFrom) return run_experts(mx::expand_dims(x, {-2, -3}), moe, ids, false);
  const mx::array flat = mx::flatten(ids);
  const mx::array order = mx::argsort(flat), back = mx::argsort(order);
  const mx::array token = mx::floor_divide(order, mx::array(k, order.dtype()));
  const mx::array gathered = mx::take(mx::expand_dims(x, -2), token, 0);
  const mx::array y = run_experts(gathered, moe, mx::take(flat, order, 0), true);
  return mx::unflatten(mx::take(y, back, 0), 0, {ids.shape(0), k});
}

}  // namespace

mx::array MlxKernels::feed_forward(const mx::array& x, const Moe& block) const {
  const Router& router = block.router;
  const mx::array normed = block.norm ? mlx_norm(x, *block.norm) : x;
  const mx::array routed = router.norm ? mlx_norm(x, *router.norm) : normed;
  const Chosen chosen = choose(linear(routed, *router.gate), router);
  const mx::array y = switch_experts(normed, block, chosen.ids);
  const mx::array sum = mx::sum(y * mx::expand_dims(chosen.weights, -1), -2);
  return mlx_join(mx::astype(sum, y.dtype()), x, block.join);
}

}  // namespace tenon::ops

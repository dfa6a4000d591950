#include "cache/stock_attention.h"

namespace tenon::cache {

mx::array causal_mask(int num_new, int offset, int window) {
  const mx::array keys = mx::expand_dims(mx::arange(offset + num_new), 0);
  const mx::array queries = mx::expand_dims(mx::arange(offset, offset + num_new), 1);
  mx::array causal = mx::greater_equal(queries, keys);
  if (window == 0) return causal;
  return mx::logical_and(causal, mx::less(queries, keys + mx::array(window)));
}

Mask full_mask(int num_new, int offset, const ops::Attend& how) {
  if (how.whole) return Mask::none();
  if (how.window > 0) return Mask::of(causal_mask(num_new, offset, how.window));
  if (num_new == 1) return Mask::none();
  return how.softcap > 0 ? Mask::of(causal_mask(num_new, offset, 0)) : Mask::causal();
}

mx::array soft_capped(const mx::array& scores, float cap) {
  const mx::array limit = ops::scalar_like(cap, scores);
  return mx::tanh(scores / limit) * limit;
}

mx::array masked(const mx::array& scores, const mx::array& seen) {
  const auto lowest = static_cast<float>(mx::finfo(scores.dtype()).min);
  return mx::where(seen, scores, ops::scalar_like(lowest, scores));
}

namespace {

// The cap stands between scores and mask, where no fused operation lets it in.
mx::array attend_capped(const mx::array& q, const mx::array& k, const mx::array& v,
                        const ops::Attend& how, const Mask& mask) {
  const int num_heads = q.shape(1), num_kv_heads = k.shape(1), repeats = num_heads / num_kv_heads;
  mx::array queries = q * ops::scalar_like(how.scale, q), keys = k, values = v;
  if (repeats > 1) {
    queries = mx::reshape(queries, {1, num_kv_heads, repeats, q.shape(2), q.shape(3)});
    keys = mx::expand_dims(keys, 2);
    values = mx::expand_dims(values, 2);
  }
  mx::array scores = soft_capped(mx::matmul(queries, mx::swapaxes(keys, -1, -2)), how.softcap);
  if (mask.seen) scores = masked(scores, *mask.seen);
  const mx::array out = mx::matmul(mx::softmax(scores, -1, true), values);
  return repeats > 1 ? mx::reshape(out, {1, num_heads, q.shape(2), v.shape(3)}) : out;
}

}  // namespace

mx::array attend_heads(const mx::array& q, const mx::array& k, const mx::array& v,
                       const ops::Attend& how, const Mask& mask) {
  if (how.softcap > 0) return attend_capped(q, k, v, how, mask);
  return mx::fast::scaled_dot_product_attention(q, k, v, how.scale, mask.mode, mask.seen);
}

}  // namespace tenon::cache

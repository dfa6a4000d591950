// For tests of decode: a target without weights. A token's embedding is its number, twice; logits
// are largest at the number that a hidden state begins with. One layer of real cache, so that
// lengths are checked.
#pragma once
#include "base/handover.h"
#include "graph/graph.h"

namespace tenon::decode {

namespace mx = mlx::core;

inline cache::CacheSet toy_caches() {
  return std::move(cache::CacheSet::make({{"attention", {1, 2, 2, mx::float32}}},
                                         **ops::make_kernels({})))
      .value();
}
// As many tokens as the rows have, into that cache.
inline void append(cache::CacheSet& caches, ops::Rows rows) {
  const mx::array kv = mx::ones({rows.back().start + rows.back().len, 1, 2});
  mx::eval(caches.layer(0).attend({kv, kv, kv, {}}, rows, {1.0f}));
  Handover::returned();
}

class ToyTarget : public graph::Model {
 public:
  explicit ToyTarget(int vocab_size, int num_layers = 1)
      : shape_{num_layers, 2, vocab_size, 0, 0}, caches_(toy_caches()) {}
  const graph::ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array embed(const mx::array& ids) override {
    const mx::array column = mx::astype(mx::reshape(ids, {-1, 1}), mx::float32);
    return mx::concatenate({column, column}, 1);
  }
  mx::array hidden(const mx::array& ids, ops::Rows, graph::Taps*) override { return embed(ids); }
  mx::array logits(const mx::array& hidden) override {
    const int num = shape_.vocab_size;
    const mx::array ids = mx::reshape(mx::arange(0.0, num, 1.0, mx::float32), {1, num});
    return mx::negative(mx::abs(ids - mx::slice(hidden, {0, 0}, {hidden.shape(0), 1})));
  }

 private:
  graph::ModelShape shape_;
  cache::CacheSet caches_;
};

}  // namespace tenon::decode

// For tests of decode: a target without weights, and a draft source that is driven by hand. A
// token's embedding is its number, twice; logits are largest at the number that a hidden state
// begins with. One layer of real cache, so that lengths are checked.
#pragma once
#include <gtest/gtest.h>

#include "base/handover.h"
#include "decode/decode.h"

namespace tenon::decode {

namespace mx = mlx::core;

constexpr int kToyVocab = 100;

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

// Row 0 of a source, as rounds of greedy decoding would drive it.
class SourceTest : public ::testing::Test {
 protected:
  void start(Result<std::unique_ptr<DraftSource>> made) {
    ASSERT_TRUE(made.ok()) << made.error().message;
    source = std::move(made).value();
    restart();
  }
  // Another request in the slot.
  void restart() {
    source->close(0);
    source->open(0);
    known.clear();
    computed = 0;
  }
  // The target computed up to `to`, accepted drafts included; taps begin at the first new position.
  void keep_row(int to, const std::vector<int32_t>& accepted, const graph::Taps& taps) {
    const KeptRow row{0, known, accepted, computed, to, 0};
    source->keep(std::span(&row, 1), taps);
    computed = to;
  }
  std::vector<int32_t> draft(int n) {
    const DraftRow row{0, known, n, 0, &greedy};
    return source->draft(std::span(&row, 1))[0];
  }
  static SamplingParams argmax() {
    SamplingParams p;
    p.temperature = 0;
    return p;
  }
  StepSampler greedy{argmax(), -1};
  ToyTarget target{kToyVocab, 4};
  std::unique_ptr<DraftSource> source;
  std::vector<int32_t> known;
  int computed = 0;
};

}  // namespace tenon::decode

// The loop over a toy model: batching, cancel, deadlines and a failing step, with no checkpoint.
#include "engine/loop.h"

#include <gtest/gtest.h>

namespace tenon::engine {
namespace {

namespace mx = mlx::core;

constexpr int kVocab = 11;

// After token t comes (3 t + 1) mod V; one layer of real cache, so that lengths are checked. Throws
// in the forward that holds `poison`, and answers NaN after `nan_after`.
class ToyModel final : public graph::Model {
 public:
  ToyModel() {
    auto set =
        cache::CacheSet::make({{"attention", {1, 4, 4, mx::float32}}}, **ops::make_kernels({}));
    caches_ = std::move(set).value();
    shape_ = {1, 4, kVocab, 64, 0};
  }
  const graph::ModelShape& shape() const override { return shape_; }
  cache::CacheSet& caches() override { return caches_; }
  mx::array embed(const mx::array& ids) override { return ids; }
  mx::array hidden(const mx::array& ids, ops::Rows rows, graph::Taps*) override {
    num_rows_max = std::max(num_rows_max, static_cast<int>(rows.size()));
    const int n = ids.shape(0);
    const mx::array kv = mx::ones({n, 1, 4});
    mx::eval(caches_.layer(0).attend({kv, kv, kv, {}}, rows, {1.0f}));
    for (int i = 0; i < n; ++i)
      if (ids.data<int32_t>()[i] == poison) throw std::runtime_error("[toy] poisoned");
    return mx::reshape(mx::astype(ids, mx::float32), {n, 1});
  }
  mx::array logits(const mx::array& hidden) override {
    std::vector<mx::array> rows;
    mx::eval(hidden);
    for (int i = 0; i < hidden.shape(0); ++i) {
      const int t = static_cast<int>(hidden.data<float>()[i]);
      std::vector<float> row(kVocab, 0);
      row[(3 * t + 1) % kVocab] = t == nan_after ? NAN : 9;
      rows.push_back(mx::array(row.begin(), {1, kVocab}));
    }
    return mx::concatenate(rows, 0);
  }
  int poison = -1, nan_after = -1, num_rows_max = 0;

 private:
  graph::ModelShape shape_;
  cache::CacheSet caches_;
};

struct Fixture {
  explicit Fixture(EngineOptions options = {}) {
    auto card = std::make_shared<Model>();
    card->end_ids = {10};
    card->context_len = 64;
    card->vocab_size = kVocab;
    card->kernels = "mlx";
    card->device = "cpu";
    auto model = std::make_unique<ToyModel>();
    toy = model.get();
    LoadedModel loaded{.card = card, .graph = std::move(model), .cache_bytes_max = 1 << 20};
    loop = std::make_unique<Loop>(std::move(loaded), options, &board, [this] { ++finished; });
  }
  std::shared_ptr<Generation> submit(std::vector<int32_t> prompt, int max_tokens,
                                     int64_t deadline_ms = 0) {
    GenerationRequest r;
    r.prompt_ids = std::move(prompt);
    r.max_tokens = max_tokens;
    r.sampling.temperature = 0;
    r.deadline_ms = deadline_ms;
    auto generation = std::make_shared<Generation>(100, std::function<void()>{});
    loop->admit({std::move(r), generation, Clock::now()});
    return generation;
  }
  void run() {
    for (int i = 0; i < 1000 && !loop->idle(); ++i) loop->turn();
    ASSERT_TRUE(loop->idle());
  }
  StatsBoard board;
  ToyModel* toy = nullptr;
  int finished = 0;
  std::unique_ptr<Loop> loop;
};

struct Outcome {
  std::vector<int32_t> ids;
  Finished end;
};
Outcome read(Generation& generation) {
  Outcome out;
  while (auto event = generation.events.try_pop()) {
    if (const auto* token = std::get_if<Token>(&*event)) out.ids.push_back(token->id);
    if (auto* end = std::get_if<Finished>(&*event)) out.end = std::move(*end);
  }
  return out;
}

TEST(Loop, GeneratesToTheLimitAndCounts) {
  Fixture f;
  auto g = f.submit({5, 0}, 3);
  f.run();
  const Outcome out = read(*g);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{1, 4, 2}));
  EXPECT_EQ(out.end.reason, FinishReason::length);
  EXPECT_EQ(out.end.usage.prompt_tokens, 2);
  EXPECT_EQ(out.end.usage.completion_tokens, 3);
  EXPECT_EQ(f.board.read().kv_bytes, 0u);
  EXPECT_EQ(f.finished, 1);
}

TEST(Loop, AnEndIdStopsAndCounts) {
  Fixture f;
  auto g = f.submit({3}, 9);  // 3 -> 10
  f.run();
  const Outcome out = read(*g);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{10}));
  EXPECT_EQ(out.end.reason, FinishReason::stop);
  EXPECT_EQ(out.end.usage.completion_tokens, 1);
}

TEST(Loop, RowsJoinAndLeaveAtStepBorders) {
  EngineOptions options;
  options.max_batch = 2;
  Fixture f(options);
  std::vector<std::shared_ptr<Generation>> all;
  for (int i = 0; i < 5; ++i) all.push_back(f.submit({static_cast<int32_t>(i), 0}, 2 + i));
  f.run();
  EXPECT_EQ(f.toy->num_rows_max, 2);
  const std::vector<int32_t> chain{1, 4, 2, 7, 0, 1};
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(read(*all[i]).ids, std::vector<int32_t>(chain.begin(), chain.begin() + 2 + i));
}

TEST(Loop, ACancelledRowIsFreeWithinOneStep) {
  Fixture f;
  auto g = f.submit({0}, 50);
  auto other = f.submit({0}, 5);
  f.loop->turn();
  EXPECT_EQ(f.board.read().running, 2);
  g->cancel();
  f.loop->turn();
  EXPECT_EQ(f.board.read().running, 1);
  EXPECT_EQ(read(*g).end.reason, FinishReason::cancelled);
  f.run();
  EXPECT_EQ(read(*other).end.reason, FinishReason::length);
  EXPECT_EQ(f.board.read().kv_bytes, 0u);
}

TEST(Loop, AFailedStepEndsItsRowsAndTheLoopGoesOn) {
  Fixture f;
  f.toy->poison = 6;
  auto bad = f.submit({0, 6}, 5);
  auto beside = f.submit({0, 1}, 5);
  f.loop->turn();
  EXPECT_EQ(read(*bad).end.error.code, Code::internal);
  EXPECT_EQ(read(*beside).end.reason, FinishReason::error);  // its caches were in the same forward
  EXPECT_TRUE(f.loop->idle());
  auto after = f.submit({0}, 2);
  f.run();
  EXPECT_EQ(read(*after).ids, (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(f.board.read().failed, 2u);
  EXPECT_EQ(f.board.read().kv_bytes, 0u);
}

TEST(Loop, NanLogitsEndOneRequestOnly) {
  Fixture f;
  f.toy->nan_after = 4;
  auto bad = f.submit({0}, 5);  // 0 -> 1 -> 4 -> NaN
  auto good = f.submit({2}, 3);  // 2 -> 7 -> 0 -> 1
  f.run();
  const Outcome out = read(*bad);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(out.end.reason, FinishReason::error);
  EXPECT_NE(out.end.error.message.find("NaN"), std::string::npos);
  EXPECT_EQ(read(*good).ids, (std::vector<int32_t>{7, 0, 1}));
}

TEST(Loop, ADeadlineEndsARequest) {
  Fixture f;
  auto g = f.submit({0}, 50, 1);
  while (!f.loop->idle()) f.loop->turn();
  EXPECT_EQ(read(*g).end.error.code, Code::deadline);
}

TEST(Loop, ChunkedPrefillGivesTheSameTokens) {
  for (int chunk : {1, 2, 5, 100}) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    Fixture f(options);
    auto g = f.submit({5, 5, 5, 5, 5, 5, 5, 0}, 3);
    f.run();
    EXPECT_EQ(read(*g).ids, (std::vector<int32_t>{1, 4, 2})) << "chunk " << chunk;
  }
}

}  // namespace
}  // namespace tenon::engine

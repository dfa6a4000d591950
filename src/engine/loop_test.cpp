// The loop over a toy model: batching, cancel, deadlines and a failing step, with no checkpoint.
#include "engine/loop.h"

#include <gtest/gtest.h>

#include <set>

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
      row[after(t)] = t == nan_after ? NAN : 9;
      rows.push_back(mx::array(row.begin(), {1, kVocab}));
    }
    return mx::concatenate(rows, 0);
  }
  static int32_t after(int32_t id) { return (3 * id + 1) % kVocab; }
  int poison = -1, nan_after = -1, num_rows_max = 0;

 private:
  graph::ModelShape shape_;
  cache::CacheSet caches_;
};

// Guesses the toy model's chain, and is wrong at every fourth token; remembers which rows are open.
class Guesser final : public decode::DraftSource {
 public:
  const char* name() const override { return "guesser"; }
  int default_depth() const override { return 3; }
  int max_depth() const override { return 5; }
  void open(int slot) override { slots.insert(slot); }
  void close(int slot) override { slots.erase(slot); }
  std::vector<std::vector<int32_t>> draft(std::span<const decode::DraftRow> rows) override {
    if (++num_calls == fails_at) throw std::runtime_error("[guesser] told to fail");
    std::vector<std::vector<int32_t>> all(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(slots.contains(rows[i].slot));
      int32_t id = rows[i].known.back();
      for (int j = 0; j < rows[i].num_drafts; ++j) {
        id = ToyModel::after(id);
        all[i].push_back((rows[i].known.size() + j) % 4 == 0 ? 0 : id);
      }
    }
    return all;
  }
  void keep(std::span<const decode::KeptRow> rows, const graph::Taps&) override {
    for (const decode::KeptRow& row : rows) EXPECT_TRUE(slots.contains(row.slot));
  }
  std::set<int> slots;
  int num_calls = 0, fails_at = -1;
};

struct Fixture {
  explicit Fixture(EngineOptions options = {}, std::unique_ptr<Guesser> drafts = nullptr) {
    auto card = std::make_shared<Model>();
    card->end_ids = {10};
    card->context_len = 64;
    card->vocab_size = kVocab;
    card->kernels = "mlx";
    card->device = "cpu";
    auto model = std::make_unique<ToyModel>();
    toy = model.get();
    LoadedModel loaded{.card = card, .graph = std::move(model), .cache_bytes_max = 1 << 20};
    guesser = drafts.get();
    loaded.drafts = std::move(drafts);
    if (guesser) loaded.step_cost.emplace(std::vector<std::pair<int, double>>{{1, 1.0}, {8, 1.1}});
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
  Guesser* guesser = nullptr;
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

std::vector<std::vector<int32_t>> replies(Fixture& f) {
  std::vector<std::shared_ptr<Generation>> all;
  for (int i = 0; i < 6; ++i) all.push_back(f.submit({static_cast<int32_t>(i), 5, 0}, 3 + 4 * i));
  f.run();
  std::vector<std::vector<int32_t>> ids;
  for (auto& generation : all) ids.push_back(read(*generation).ids);
  return ids;
}

TEST(Loop, DraftsChangeNoToken) {
  Fixture plain;
  const auto want = replies(plain);
  for (int depth : {-1, 1, 2, 5}) {
    EngineOptions options;
    options.max_batch = 4;
    options.draft_depth = depth;
    Fixture f(options, std::make_unique<Guesser>());
    EXPECT_EQ(replies(f), want) << depth;
    const Stats stats = f.board.read();
    EXPECT_GT(stats.drafts.accepted, 0u);
    EXPECT_LT(stats.drafts.accepted, stats.drafts.drafted) << depth;
    EXPECT_LT(stats.steps, plain.board.read().steps + 8);
    EXPECT_EQ(stats.completion_tokens, plain.board.read().completion_tokens);
    EXPECT_EQ(stats.kv_bytes, 0u);
    EXPECT_TRUE(f.guesser->slots.empty());
    EXPECT_LE(stats.drafts.drafted_at.size(), static_cast<size_t>(depth < 0 ? 5 : depth));
  }
}

TEST(Loop, AFailingDraftSourceEndsNothing) {
  Fixture plain;
  const auto want = replies(plain);
  for (int call : {1, 2, 5}) {
    EngineOptions options;
    options.draft_depth = 2;
    Fixture f(options, std::make_unique<Guesser>());
    f.guesser->fails_at = call;
    EXPECT_EQ(replies(f), want) << call;
    EXPECT_TRUE(f.guesser->slots.empty());
    EXPECT_EQ(replies(f), want) << call;  // later requests draft again
    EXPECT_GT(f.guesser->num_calls, call);
  }
}

// A draft behind the end of a reply may stand on NaN: plain decoding would not have got there.
TEST(Loop, WhatFailsBehindTheEndOfAReplyIsNoError) {
  for (int max_tokens : {1, 2, 3, 9}) {
    const auto ask = [&](std::unique_ptr<Guesser> drafts) {
      EngineOptions options;
      options.draft_depth = 5;
      Fixture f(options, std::move(drafts));
      f.toy->nan_after = 4;  // 0 -> 1 -> 4 -> NaN
      auto g = f.submit({5, 5, 0}, max_tokens);
      f.run();
      return read(*g);
    };
    const Outcome plain = ask(nullptr), drafted = ask(std::make_unique<Guesser>());
    EXPECT_EQ(drafted.ids, plain.ids) << max_tokens;
    EXPECT_EQ(drafted.end.reason, plain.end.reason) << max_tokens;
    EXPECT_EQ(drafted.end.reason == FinishReason::error, max_tokens > 2);
  }
}

// 3 -> 10 is an end; what comes behind it is NaN.
TEST(Loop, AnEndInsideABurstHidesWhatFailsBehindIt) {
  EngineOptions options;
  options.draft_depth = 5;
  Fixture f(options, std::make_unique<Guesser>());
  f.toy->nan_after = 10;
  auto g = f.submit({5, 5, 8}, 20);  // 8 -> 3 -> 10
  f.run();
  const Outcome out = read(*g);
  EXPECT_EQ(out.ids, (std::vector<int32_t>{3, 10}));
  EXPECT_EQ(out.end.reason, FinishReason::stop);
}

TEST(Loop, AFailedStepClosesItsDraftRows) {
  EngineOptions options;
  options.draft_depth = 2;
  Fixture f(options, std::make_unique<Guesser>());
  f.toy->poison = 6;
  auto bad = f.submit({0, 6}, 5);
  f.loop->turn();
  EXPECT_EQ(read(*bad).end.reason, FinishReason::error);
  EXPECT_TRUE(f.guesser->slots.empty());
  auto after = f.submit({0}, 2);
  f.run();
  EXPECT_EQ(read(*after).ids, (std::vector<int32_t>{1, 4}));
}

TEST(Loop, ThousandCancelledDraftersLeaveNothing) {
  EngineOptions options;
  options.draft_depth = 3;
  Fixture f(options, std::make_unique<Guesser>());
  for (int i = 0; i < 1000; ++i) {
    auto g = f.submit({0, 5, 0}, 40);
    for (int turns = 0; turns <= i % 4; ++turns) f.loop->turn();
    g->cancel();
    f.loop->turn();
    EXPECT_EQ(read(*g).end.reason, FinishReason::cancelled);
  }
  EXPECT_TRUE(f.loop->idle());
  EXPECT_EQ(f.board.read().kv_bytes, 0u);
  EXPECT_TRUE(f.guesser->slots.empty());
}

TEST(Loop, ARequestMayDoWithoutDrafts) {
  EngineOptions options;
  options.draft_depth = 3;
  Fixture f(options, std::make_unique<Guesser>());
  GenerationRequest r;
  r.prompt_ids = {0};
  r.max_tokens = 9;
  r.sampling.temperature = 0;
  r.draft_depth = 0;
  auto generation = std::make_shared<Generation>(100, std::function<void()>{});
  f.loop->admit({std::move(r), generation, Clock::now()});
  f.run();
  EXPECT_EQ(f.guesser->num_calls, 0);
  EXPECT_EQ(read(*generation).end.drafts.drafted, 0u);
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

// An engine without a model, for tests of api, server and clients. Same door, same event rules, one
// thread.
//
// What it says is a function of the prompt, the seed, the choice and the step (not of the seed at
// temperature 0). A prompt that holds [[say TEXT]] is answered with TEXT and an end; [[ids 1,2,3]]
// with those ids;
// [[fail N]] fails after N tokens; [[refuse]] is refused as overloaded. Other prompts get letters
// and an end with a chance of 1 in 40 at each step. logit_bias of 100 forces a token, -100 bans
// one. Logprobs: the token drawn has probability 1/2, the k-th best other 2^-(k+1). Limits: window
// 256; 8 rows at once; `queue_max` more may wait. A prompt seen before reports all but its last
// token, in blocks of 16, as cached.
#pragma once
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "fake_model.h"

namespace tenon::fake {

struct FakeOptions {
  int token_ms = 0;  // pause of a step, in which each row draws one token
  int prefill_ms = 0;  // pause for each 32 tokens of a prompt
  size_t queue_max = 64;
};

class FakeEngine : public engine::Engine {
 public:
  explicit FakeEngine(FakeOptions options = {}, std::string name = "fake")
      : options_(options), model_(make_model(name)), thread_([this] { loop(); }) {}
  ~FakeEngine() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    news_.notify_all();
    thread_.join();
  }

  std::vector<std::shared_ptr<const engine::Model>> models() const override { return {model_}; }
  Result<std::shared_ptr<const engine::Model>> model(std::string_view name) const override {
    if (name.empty() || name == model_->name) return model_;
    return not_found("no such model").because("model_not_found");
  }

  Result<std::shared_ptr<engine::Generation>> submit(engine::GenerationRequest request) override {
    TENON_OK(check(request));
    Row row;
    row.script = script(request);
    row.prompt_tokens = static_cast<int>(request.prompt_ids.size());
    row.max_tokens = std::min(request.max_tokens, kWindow - row.prompt_tokens);
    // Progress, tokens and Finished: what the channel can ever hold.
    row.generation =
        std::make_shared<engine::Generation>(kWindow + kWindow / 32 + 4, request.on_event);
    row.request = std::move(request);
    auto generation = row.generation;
    {
      std::lock_guard lock(mutex_);
      ++stats_.requests;
      if (stopping_ || draining_) return refuse(unavailable("the engine is stopping"));
      if (waiting_.size() >= options_.queue_max)
        return refuse(overloaded("the engine's queue is full"));
      waiting_.push_back(std::move(row));
      stats_.waiting = static_cast<int>(waiting_.size());
    }
    news_.notify_all();
    return generation;
  }

  engine::Stats stats() const override {
    std::lock_guard lock(mutex_);
    engine::Stats stats = stats_;
    stats.ready = !stopping_ && !draining_;
    return stats;
  }

  void drain(int64_t deadline_ms) override {
    std::unique_lock lock(mutex_);
    draining_ = true;
    const auto idle = [this] { return stats_.running == 0 && waiting_.empty(); };
    if (idle_.wait_for(lock, std::chrono::milliseconds(deadline_ms), idle)) return;
    cut_ = true;
    news_.notify_all();
    idle_.wait(lock, idle);
  }

 private:
  struct Row {
    engine::GenerationRequest request;
    std::shared_ptr<engine::Generation> generation;
    std::vector<int32_t> script;  // empty: letters
    int prompt_tokens = 0, max_tokens = 0, computed = 0, drawn = 0, cached = 0, fail_after = -1;
  };

  Error refuse(Error error) {
    ++stats_.refused;
    return error;
  }

  Status check(const engine::GenerationRequest& request) const {
    TENON_OK(as_status(model(request.model)));
    const int length = static_cast<int>(request.prompt_ids.size());
    if (length == 0) return invalid("the prompt is empty").at("prompt");
    if (length >= kWindow)
      return invalid("the prompt has {} tokens, the window holds {} with the reply", length,
                     kWindow)
          .because("context_length_exceeded");
    for (const int32_t id : request.prompt_ids)
      if (id < 0 || id >= kVocab)
        return invalid("token id {} is outside the vocabulary", id).at("prompt");
    if (prompt_text(request).find("[[refuse]]") != std::string::npos)
      return overloaded("refused, as asked");
    return {};
  }

  template <class T>
  static Status as_status(const Result<T>& result) {
    return result.ok() ? Status() : Status(result.error());
  }

  std::string prompt_text(const engine::GenerationRequest& request) const {
    return must(model_->tokenizer->decode(request.prompt_ids, false));
  }

  // What stands in [[name ...]], the last one if there are several.
  std::optional<std::string> directive(const engine::GenerationRequest& request,
                                       const char* name) const {
    const std::string text = prompt_text(request), open = std::string("[[") + name + " ";
    const size_t begin = text.rfind(open), end = text.find("]]", begin);
    if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
    return text.substr(begin + open.size(), end - begin - open.size());
  }

  std::vector<int32_t> script(const engine::GenerationRequest& request) const {
    std::vector<int32_t> ids;
    if (const auto text = directive(request, "say")) {
      ids = must(model_->tokenizer->encode(*text, text::Control::plain));
      ids.push_back(kImEnd);
    } else if (const auto list = directive(request, "ids")) {
      for (const char* at = list->c_str(); *at;) {
        char* end = nullptr;
        const long id = std::strtol(at, &end, 10);
        if (end == at) break;
        if (id >= 0 && id < kVocab) ids.push_back(static_cast<int32_t>(id));
        at = *end == ',' ? end + 1 : end;
      }
    }
    return ids;
  }

  static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
  }

  int32_t draw(const Row& row) const {
    const SamplingParams& sampling = row.request.sampling;
    const auto step = static_cast<size_t>(row.drawn);
    int32_t id = kImEnd;
    if (step < row.script.size()) {
      id = row.script[step];
    } else {
      uint64_t h = 1;
      for (const int32_t prompt_id : row.request.prompt_ids)
        h = mix(h, static_cast<uint64_t>(prompt_id));
      if (sampling.temperature > 0) h = mix(mix(h, sampling.seed), sampling.choice);
      h = mix(mix(h, step), 7) >> 16;
      const bool may_end = row.fail_after < 0;
      id = may_end && h % 40 == 0 ? kImEnd : static_cast<int32_t>('a' + h / 40 % 26);
    }
    for (const auto& [biased, bias] : sampling.logit_bias) {
      if (bias >= 100) return biased;
      if (bias <= -100 && biased == id) id = id == 'z' ? 'y' : 'z';
    }
    return id;
  }

  void loop() {
    std::vector<Row> rows;
    for (;;) {
      bool cut = false;
      {
        std::unique_lock lock(mutex_);
        if (rows.empty()) news_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
        cut = stopping_ || cut_;
        for (; !waiting_.empty() && (rows.size() < 8 || cut); waiting_.pop_front())
          rows.push_back(admit());
        stats_.running = static_cast<int>(rows.size());
        stats_.waiting = static_cast<int>(waiting_.size());
        if (rows.empty() && stopping_) return;
      }
      bool prefilled = false;
      std::erase_if(rows, [&](Row& row) { return advance(row, cut, &prefilled); });
      const int pause_ms = prefilled ? options_.prefill_ms : options_.token_ms;
      if (pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      std::lock_guard lock(mutex_);
      ++stats_.steps;
      stats_.running = static_cast<int>(rows.size());
      if (rows.empty()) idle_.notify_all();
    }
  }

  Row admit() {
    Row row = std::move(waiting_.front());
    if (!seen_.insert(row.request.prompt_ids).second)
      row.cached = (row.prompt_tokens - 1) / 16 * 16;
    if (const auto n = directive(row.request, "fail")) row.fail_after = std::atoi(n->c_str());
    row.computed = row.cached;
    return row;
  }

  // One step of a row; true when it is over.
  bool advance(Row& row, bool cut, bool* prefilled) {
    if (row.generation->is_cancelled()) return end(row, FinishReason::cancelled);
    if (cut) return end(row, FinishReason::error, unavailable("the engine is stopping"));
    if (row.computed < row.prompt_tokens) {
      *prefilled = true;
      row.computed = std::min(row.computed + 32, row.prompt_tokens);
      if (row.request.want_progress) push(row, engine::Progress{row.computed, row.prompt_tokens});
      return false;
    }
    if (row.drawn == row.fail_after)
      return end(row, FinishReason::error, internal("failed, as asked"));
    engine::Token token;
    token.id = draw(row);
    token.end = token.id == kImEnd;
    token.logprob = static_cast<float>(-std::log(2.0));
    for (int k = 0; k < row.request.top_logprobs; ++k)
      token.top.push_back({(token.id + k) % kVocab, static_cast<float>(-std::log(2.0) * (k + 1))});
    const bool ends = token.end && !row.request.ignore_end;
    push(row, std::move(token));
    ++row.drawn;
    if (ends) return end(row, FinishReason::stop);
    return row.drawn >= row.max_tokens && end(row, FinishReason::length);
  }

  bool end(Row& row, FinishReason reason, Error error = {}) {
    engine::Finished last;
    last.reason = reason;
    last.error = std::move(error);
    last.usage = {row.prompt_tokens, row.drawn, row.cached};
    {
      std::lock_guard lock(mutex_);
      stats_.finished += reason == FinishReason::stop || reason == FinishReason::length;
      stats_.cancelled += reason == FinishReason::cancelled;
      stats_.failed += reason == FinishReason::error;
      stats_.prompt_tokens += static_cast<uint64_t>(row.prompt_tokens);
      stats_.completion_tokens += static_cast<uint64_t>(row.drawn);
    }
    push(row, std::move(last));
    return true;
  }

  static void push(Row& row, engine::Event event) {
    if (!row.generation->events.push(std::move(event)))
      std::abort();  // the capacity covers every event
  }

  const FakeOptions options_;
  const std::shared_ptr<const engine::Model> model_;
  mutable std::mutex mutex_;
  std::condition_variable news_, idle_;
  std::deque<Row> waiting_;
  std::set<std::vector<int32_t>> seen_;
  engine::Stats stats_;
  bool stopping_ = false, draining_ = false, cut_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace tenon::fake

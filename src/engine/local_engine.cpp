// The engine thread and its door: a bounded command queue in, event channels out.
#include <atomic>
#include <condition_variable>
#include <future>
#include <thread>

#include "base/log.h"
#include "engine/loop.h"

namespace tenon::engine {

namespace {

enum class Control { resume, cut, stop };
using Command = std::variant<Submission, Control>;

// Past the whole reply: the last Progress, the Finished, and some air.
constexpr size_t kSpareEvents = 16;

size_t event_capacity(const GenerationRequest& r) {
  size_t n = r.max_tokens + kSpareEvents;
  if (r.want_progress) n += r.prompt_ids.size();
  if (r.want_logits) n += r.prompt_ids.size() + r.max_tokens;
  return n;
}

class Local final : public LocalEngine {
 public:
  explicit Local(EngineOptions options)
      : options_(std::move(options)),
        in_flight_max_(options_.max_batch + options_.max_queue),
        commands_(in_flight_max_ + kSpareEvents) {}

  ~Local() override {
    static_cast<void>(commands_.push(Control::stop));
    commands_.close();
    if (thread_.joinable()) thread_.join();
  }

  Status start() {
    std::promise<Status> loaded;
    auto outcome = loaded.get_future();
    thread_ = std::thread([this, &loaded] { run(loaded); });
    return outcome.get();
  }

  std::vector<std::shared_ptr<const Model>> models() const override { return {card_}; }

  Result<std::shared_ptr<const Model>> model(std::string_view name) const override {
    if (name.empty() || name == card_->name) return card_;
    return not_found("there is no model '{}' here", name).because("model_not_found").at("model");
  }

  Result<std::shared_ptr<Generation>> submit(GenerationRequest request) override {
    TENON_OK(check(request));
    auto generation =
        std::make_shared<Generation>(event_capacity(request), std::move(request.on_event));
    {
      std::lock_guard lock(flight_mutex_);
      if (draining_) return unavailable("the server is stopping");
      if (in_flight_ >= in_flight_max_) {
        board_.update([](Stats& stats) { ++stats.refused; });
        return overloaded("{} requests are in flight, the limit; try again later", in_flight_);
      }
      ++in_flight_;
    }
    if (!commands_.push(Submission{std::move(request), generation, Clock::now()})) {
      landed();
      return unavailable("the engine has stopped");
    }
    return generation;
  }

  Stats stats() const override { return board_.read(); }

  void resume() override { static_cast<void>(commands_.push(Control::resume)); }

  void drain(int64_t deadline_ms) override {
    std::unique_lock lock(flight_mutex_);
    draining_ = true;
    const auto none_left = [&] { return in_flight_ == 0; };
    if (landed_.wait_for(lock, std::chrono::milliseconds(deadline_ms), none_left)) return;
    static_cast<void>(commands_.push(Control::cut));
    landed_.wait(lock, none_left);
  }

 private:
  // Clips max_tokens to the window. The caches hold at most context_len tokens; the last token
  // drawn is never fed back, so prompt + output may be one longer.
  Status check(GenerationRequest& r) const {
    TENON_TRY(const auto card, model(r.model));
    if (r.prompt_ids.empty()) return invalid("the prompt is empty").at("prompt");
    for (int32_t id : r.prompt_ids)
      if (id < 0 || id >= card->vocab_size)
        return invalid("token id {} is outside the vocabulary of {}", id, card->vocab_size)
            .at("prompt");
    const auto prompt_len = static_cast<int64_t>(r.prompt_ids.size());
    if (prompt_len > card->context_len)
      return invalid("the prompt has {} tokens, the context window is {}", prompt_len,
                     card->context_len)
          .because("context_length_exceeded");
    if (r.max_tokens < 1) return invalid("max_tokens must be at least 1").at("max_tokens");
    r.max_tokens = std::min(r.max_tokens, static_cast<int>(card->context_len - prompt_len) + 1);
    return {};
  }

  void landed() {
    std::lock_guard lock(flight_mutex_);
    --in_flight_;
    landed_.notify_all();
  }

  // The engine thread. Loads here, because streams and arrays belong to the thread that made them.
  void run(std::promise<Status>& loaded) {
    auto model = load_model(options_);
    if (!model.ok()) {
      loaded.set_value(std::move(model).error());
      return;
    }
    card_ = model->card;
    Loop loop(std::move(model).value(), options_, &board_, [this] { landed(); });
    board_.update([](Stats& stats) { stats.ready = true; });
    loaded.set_value({});  // `loaded` is gone after this
    serve(loop);
    loop.end_all(unavailable("the server is stopping"));
  }

  // A failed forward is the loop's to contain. What escapes it (memory, bookkeeping) ends every
  // request rather than the process.
  static void turn(Loop& loop) {
    try {
      loop.turn();
    } catch (const std::exception& e) {
      log_warn("the engine ends all requests: {}", e.what());
      loop.end_all(internal("the engine failed: {}", e.what()));
    }
  }

  void serve(Loop& loop) {
    bool paused = options_.start_paused;
    for (;;) {
      // Nothing to compute: sleep until somebody asks. Otherwise only look.
      const bool wait = loop.idle() || paused;
      auto command = wait ? commands_.pop() : commands_.try_pop();
      if (wait && !command) return;  // closed and drained
      while (command) {
        if (auto* submission = std::get_if<Submission>(&*command)) {
          loop.admit(std::move(*submission));
        } else if (std::get<Control>(*command) == Control::stop) {
          return;
        } else if (std::get<Control>(*command) == Control::cut) {
          loop.end_all(unavailable("the server is stopping"));
        } else {
          paused = false;
        }
        command = commands_.try_pop();
      }
      if (!paused) turn(loop);
    }
  }

  const EngineOptions options_;
  const int in_flight_max_;
  Channel<Command> commands_;
  StatsBoard board_;
  std::shared_ptr<const Model> card_;
  mutable std::mutex flight_mutex_;
  std::condition_variable landed_;
  int in_flight_ = 0;
  bool draining_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<LocalEngine>> load_engine(const EngineOptions& options) {
  if (options.max_batch < 1 || options.max_batch > 1024)
    return invalid("--max-batch {}: use 1 to 1024", options.max_batch);
  if (options.max_queue < 0 || options.max_queue > 1 << 20)
    return invalid("--max-queue {}: use 0 to {}", options.max_queue, 1 << 20);
  auto engine = std::make_unique<Local>(options);
  TENON_OK(engine->start());
  return std::unique_ptr<LocalEngine>(std::move(engine));
}

}  // namespace tenon::engine

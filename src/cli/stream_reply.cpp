#include "cli/stream_reply.h"

#include <algorithm>
#include <chrono>

#include "cli/terminal.h"

namespace tenon::cli {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Prefill longer than a second deserves a bar; the first token takes it away.
class PrefillBar {
 public:
  explicit PrefillBar(Clock::time_point start) : start_(start) {}
  void show(const engine::Progress& progress) {
    if (ms_since(start_) < 1000 || progress.total <= 0) return;
    bar_.show("prompt", static_cast<double>(progress.computed) / progress.total);
  }
  void done() { bar_.done(); }

 private:
  Clock::time_point start_;
  ProgressBar bar_;
};

// Feeds tokens through text::Reply and remembers whether a stop string ended it.
class Assembler {
 public:
  Assembler(const engine::Model& model, std::vector<std::string> stops,
            const std::function<bool(std::string_view)>& on_text, StreamedReply& out)
      : reply_(model.tokenizer, std::move(stops)), on_text_(on_text), out_(out) {}
  // False: nothing more is wanted.
  bool push(int32_t id) {
    if (over_) return false;
    take(reply_.push(id));
    return !over_;
  }
  void finish() {
    if (!over_) take(reply_.finish());
  }
  bool stopped() const { return stopped_; }
  bool over() const { return over_; }

 private:
  void take(const text::Reply::Delta& delta) {
    out_.text += delta.content;
    bool gone = !delta.content.empty() && !on_text_(delta.content);
    out_.interrupted = out_.interrupted || gone;
    stopped_ = delta.stop.has_value();
    over_ = stopped_ || gone;
  }
  text::Reply reply_;
  const std::function<bool(std::string_view)>& on_text_;
  StreamedReply& out_;
  bool over_ = false;
  bool stopped_ = false;
};

}  // namespace

engine::GenerationRequest make_request(const engine::Model& model, std::vector<int32_t> prompt_ids,
                                       const SamplingParams& sampling, int64_t max_tokens) {
  engine::GenerationRequest request;
  int64_t room = model.context_len - static_cast<int64_t>(prompt_ids.size());
  int64_t wanted = max_tokens > 0 ? std::min(max_tokens, room) : room;
  request.max_tokens = static_cast<int>(std::max<int64_t>(1, wanted));
  request.prompt_ids = std::move(prompt_ids);
  request.sampling = sampling;
  request.want_progress = true;
  return request;
}

Result<StreamedReply> stream_reply(engine::Engine& engine, const engine::Model& model,
                                   engine::GenerationRequest request,
                                   std::vector<std::string> stops,
                                   const std::function<bool(std::string_view)>& on_text) {
  Clock::time_point start = Clock::now();
  TENON_TRY(std::shared_ptr<engine::Generation> generation, engine.submit(std::move(request)));
  StreamedReply out;
  Assembler assembler(model, std::move(stops), on_text, out);
  PrefillBar bar(start);
  int num_tokens = 0;
  for (;;) {
    // Short waits: a signal does not wake a condition variable.
    std::optional<engine::Event> event = generation->events.pop_for(std::chrono::milliseconds(50));
    if (InterruptGuard::is_raised() && !generation->is_cancelled()) {
      out.interrupted = true;
      generation->cancel();
    }
    if (!event) continue;
    if (auto* progress = std::get_if<engine::Progress>(&*event)) bar.show(*progress);
    if (auto* token = std::get_if<engine::Token>(&*event)) {
      bar.done();
      if (out.stats.first_token_ms == 0) out.stats.first_token_ms = ms_since(start);
      // What was drawn before the engine saw the cancel is no part of the reply.
      if (!out.interrupted && !assembler.over()) ++num_tokens;
      bool more = out.interrupted || token->end || assembler.push(token->id);
      if (!more) generation->cancel();
    }
    if (auto* finished = std::get_if<engine::Finished>(&*event)) {
      bar.done();
      out.reason = assembler.stopped() ? FinishReason::stop : finished->reason;
      out.stats.usage = finished->usage;
      out.stats.usage.completion_tokens = num_tokens;
      out.stats.drafts = finished->drafts;
      out.stats.total_ms = ms_since(start);
      if (out.reason == FinishReason::error) return finished->error;
      if (!out.interrupted) assembler.finish();
      return out;
    }
  }
}

std::string describe(const ReplyStats& stats) {
  const engine::Usage& usage = stats.usage;
  int computed = usage.prompt_tokens - usage.cached_tokens;
  auto rate = [](double tokens, double ms) { return ms > 0 ? tokens * 1000 / ms : 0.0; };
  std::string text = fmt::format("{} prompt tokens at {:.1f}/s", usage.prompt_tokens,
                                 rate(computed, stats.first_token_ms));
  if (usage.cached_tokens > 0) text += fmt::format(" ({} from cache)", usage.cached_tokens);
  double decode_ms = stats.total_ms - stats.first_token_ms;
  text += fmt::format(", {} tokens at {:.1f}/s, first after {:.0f} ms", usage.completion_tokens,
                      rate(usage.completion_tokens - 1, decode_ms), stats.first_token_ms);
  if (const engine::DraftStats& drafts = stats.drafts; drafts.drafted > 0)
    text += fmt::format("; {} drafted, {} accepted in {} rounds", drafts.drafted, drafts.accepted,
                        drafts.rounds);
  return text;
}

}  // namespace tenon::cli

#include "api/reply_stream.h"

#include <algorithm>

#include "base/log.h"

namespace tenon::api {

ReplyStream::ReplyStream(const Context& context, Surface surface,
                         std::shared_ptr<const engine::Model> model, GenerateOptions options,
                         std::shared_ptr<Response> response)
    : workers_(*context.workers),
      engine_(*context.engine),
      model_(model),
      options_(std::move(options)),
      default_max_tokens_(context.limits.default_max_tokens),
      rows_max_(context.limits.rows_max),
      response_(std::move(response)),
      wire_(surface, std::move(model), options_) {}

void ReplyStream::run(const Context& context, Surface surface,
                      std::shared_ptr<const engine::Model> model,
                      std::vector<std::vector<int32_t>> prompts, GenerateOptions options,
                      std::shared_ptr<Response> response) {
  const std::shared_ptr<ReplyStream> self(
      new ReplyStream(context, surface, std::move(model), std::move(options), response));
  // Weak, as the response is ours: its callback must not keep us.
  response->on_disconnect([weak = std::weak_ptr<ReplyStream>(self)] {
    const auto stream = weak.lock();
    if (!stream) return;
    stream->gone_ = true;
    stream->cancel_all();
    stream->wake();
  });
  const Status submitted = self->submit(std::move(prompts));
  if (!submitted.ok())
    self->fail(submitted.error(), "");
  else
    self->start();
  self->step();
}

Status ReplyStream::submit(std::vector<std::vector<int32_t>> prompts) {
  const size_t wanted = prompts.size() * static_cast<size_t>(options_.n);
  if (wanted > static_cast<size_t>(rows_max_))
    return std::move(invalid("{} prompts x n {} are {} replies, at most {} are made at once",
                             prompts.size(), options_.n, wanted, rows_max_)
                         .at("n"));
  rows_.reserve(prompts.size() * static_cast<size_t>(options_.n));
  for (const std::vector<int32_t>& ids : prompts)
    for (int i = 0; i < options_.n; ++i) TENON_OK(submit_row(ids, static_cast<uint32_t>(i)));
  return {};
}

Status ReplyStream::submit_row(std::vector<int32_t> ids, uint32_t choice) {
  if (gone_) return cancelled("the client left");
  const int prompt_tokens = static_cast<int>(ids.size());
  const int64_t room = std::max(model_->context_len - prompt_tokens, 1);
  const int64_t wanted = options_.max_tokens       ? *options_.max_tokens
                         : default_max_tokens_ > 0 ? default_max_tokens_
                                                   : room;
  engine::GenerationRequest request;
  request.model = model_->name;
  request.prompt_ids = std::move(ids);
  request.sampling = options_.sampling;
  request.sampling.choice = choice;
  request.max_tokens = static_cast<int>(std::min(wanted, room));
  request.ignore_end = options_.ignore_end;
  request.top_logprobs = options_.top_logprobs;
  request.draft_depth = options_.draft_depth;
  request.want_progress = options_.stream && options_.include_progress;
  request.on_event = [self = shared_from_this()] { self->wake(); };
  TENON_TRY(auto generation, engine_.submit(std::move(request)));
  std::lock_guard lock(generations_mutex_);
  const int index = static_cast<int>(rows_.size());
  rows_.push_back({Choice(index, model_->tokenizer, options_.stops, options_.top_logprobs >= 0),
                   choice == 0 ? prompt_tokens : 0});
  rows_.back().generation = std::move(generation);
  if (gone_) rows_.back().generation->cancel();
  return {};
}

void ReplyStream::start() {
  if (!options_.stream) return;
  started_ = true;
  Response::Headers headers = this->headers("text/event-stream; charset=utf-8");
  headers.emplace_back("cache-control", "no-cache");
  headers.emplace_back("x-accel-buffering", "no");
  response_->start(200, std::move(headers));
}

void ReplyStream::wake() {
  if (wakes_.fetch_add(1) == 0) workers_.post_more([self = shared_from_this()] { self->step(); });
}

void ReplyStream::step() {
  const int seen = wakes_.load();
  try {
    if (!ended_ && !drain()) ended_ = true;
  } catch (const std::exception& e) {
    fail(internal("{}", e.what()), "");
  }
  if (ended_) let_go();
  // Whatever came in meanwhile waits for its turn behind the steps of other requests.
  if (wakes_.fetch_sub(seen) != seen)
    workers_.post_more([self = shared_from_this()] { self->step(); });
}

bool ReplyStream::drain() {
  if (gone_) {
    cancel_all();
    return false;
  }
  std::string out;
  bool open = false;
  for (Row& row : rows_) {
    if (!take(row, &out)) return false;
    open = open || !row.finished;
  }
  if (!open) {
    end(std::move(out));
    return false;
  }
  if (out.empty() || response_->write(std::move(out))) return true;
  cancel_all();
  return false;
}

// All events of one row. False: the reply failed and is answered.
bool ReplyStream::take(Row& row, std::string* out) {
  while (!row.finished) {
    const auto event = row.generation->events.try_pop();
    if (!event) return true;
    if (const auto* drawn = std::get_if<engine::Token>(&*event)) {
      token(row, *drawn, out);
    } else if (const auto* progress = std::get_if<engine::Progress>(&*event)) {
      if (options_.stream && options_.include_progress)
        *out += wire_.progress(row.choice.index(), *progress);
    } else if (const auto* last = std::get_if<engine::Finished>(&*event)) {
      if (!row.choice.over() && last->reason == FinishReason::error) {
        fail(last->error, std::move(*out));
        return false;
      }
      if (!row.choice.over() && last->reason == FinishReason::cancelled) {
        fail(cancelled("the request was cancelled"), std::move(*out));
        return false;
      }
      finished(row, *last, out);
    }
  }
  return true;
}

void ReplyStream::token(Row& row, const engine::Token& token, std::string* out) {
  if (row.choice.over()) return;  // drawn before the engine saw the cancel; not part of the reply
  emit(row, row.choice.push(token), out);
  if (!row.choice.over()) return;
  row.generation->cancel();  // a stop string matched
  if (options_.stream) *out += wire_.final(row.choice.index(), row.choice.finish_reason());
}

void ReplyStream::finished(Row& row, const engine::Finished& event, std::string* out) {
  row.finished = true;
  row.cached_tokens = event.usage.cached_tokens;
  if (row.choice.over()) return;
  emit(row, row.choice.finish(event.reason), out);
  if (options_.stream) *out += wire_.final(row.choice.index(), row.choice.finish_reason());
}

void ReplyStream::emit(Row& row, Piece piece, std::string* out) {
  if (options_.stream) {
    if (!row.role_sent) *out += wire_.role(row.choice.index());
    row.role_sent = true;
    *out += wire_.delta(row.choice.index(), piece);
    return;
  }
  row.whole.text += piece.text;
  std::move(piece.entries.begin(), piece.entries.end(), std::back_inserter(row.whole.entries));
}

void ReplyStream::end(std::string out) {
  if (options_.stream) {
    out += wire_.usage(totals());
    out += Wire::done();
    response_->write(std::move(out));
    response_->finish();
    return;
  }
  Json choices = Json::array();
  for (const Row& row : rows_)
    choices.push_back(wire_.choice(row.choice.index(), row.whole, row.choice.finish_reason()));
  response_->send(200, headers("application/json"), wire_.body(std::move(choices), totals()));
}

void ReplyStream::fail(const Error& error, std::string out) {
  if (ended_) return;
  ended_ = true;
  cancel_all();
  if (!started_) return send_error(*response_, error);
  // OpenAI's clients raise on data that holds an error; nothing follows it.
  response_->write(out + Wire::error(error));
  response_->finish();
}

void ReplyStream::cancel_all() {
  std::lock_guard lock(generations_mutex_);
  for (Row& row : rows_)
    if (row.generation) row.generation->cancel();
}

void ReplyStream::let_go() {
  std::lock_guard lock(generations_mutex_);
  for (Row& row : rows_) row.generation.reset();
}

UsageTotals ReplyStream::totals() const {
  UsageTotals totals;
  for (const Row& row : rows_) {
    totals.completion_tokens += row.choice.completion_tokens();
    totals.prompt_tokens += row.prompt_tokens;
    if (row.prompt_tokens > 0) totals.cached_tokens += row.cached_tokens;
  }
  return totals;
}

Response::Headers ReplyStream::headers(const char* content_type) const {
  Response::Headers headers{{"content-type", content_type}};
  std::string names;
  for (const std::string& name : options_.ignored) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) headers.emplace_back("x-tenon-ignored-fields", std::move(names));
  return headers;
}

}  // namespace tenon::api

// A request that is running: its generations in, one reply out, streamed or whole.
// Threads: events arrive on the engine thread, which only counts them; the work is done in steps on
// the workers, at most one waiting or running at a time. Leaving comes from the I/O thread.
// Ownership: the engine's Generation keeps this object through its callback; this object lets its
// generations go when the reply ends, and the engine drops its own after Finished, which breaks the
// circle. The reply ends when every generation has sent Finished, also after a stop string, as only
// Finished knows how many prompt tokens came from a cache.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "api/api.h"
#include "api/choice.h"
#include "api/fields.h"
#include "api/wire.h"

namespace tenon::api {

class ReplyStream : public std::enable_shared_from_this<ReplyStream> {
 public:
  // Submits n generations for each prompt, then starts the reply; if one is refused the others are
  // cancelled and the refusal is the answer.
  static void run(const Context& context, Surface surface,
                  std::shared_ptr<const engine::Model> model,
                  std::vector<std::vector<int32_t>> prompts, GenerateOptions options,
                  std::shared_ptr<Response> response);

 private:
  struct Row {
    Choice choice;
    int prompt_tokens = 0;  // 0 but for the first choice of a prompt
    int cached_tokens = 0;
    bool role_sent = false;
    bool finished = false;  // the engine said so
    Piece whole;  // of a reply that is not streamed
    std::shared_ptr<engine::Generation> generation = nullptr;
  };

  ReplyStream(const Context& context, Surface surface, std::shared_ptr<const engine::Model> model,
              GenerateOptions options, std::shared_ptr<Response> response);
  Status submit(std::vector<std::vector<int32_t>> prompts);
  Status submit_row(std::vector<int32_t> ids, uint32_t choice);
  void start();
  void wake();  // any thread: there is something to do
  void step();  // worker
  bool drain();  // false: the reply is over
  bool take(Row& row, std::string* out);
  void token(Row& row, const engine::Token& token, std::string* out);
  void finished(Row& row, const engine::Finished& event, std::string* out);
  void emit(Row& row, Piece piece, std::string* out);
  void end(std::string out);
  void fail(const Error& error, std::string out);
  void cancel_all();  // any thread
  void let_go();
  UsageTotals totals() const;
  Response::Headers headers(const char* content_type) const;

  Workers& workers_;
  engine::Engine& engine_;
  const std::shared_ptr<const engine::Model> model_;
  GenerateOptions options_;
  const int64_t default_max_tokens_;
  const int rows_max_;
  const std::shared_ptr<Response> response_;
  Wire wire_;
  std::vector<Row> rows_;
  std::atomic<int> wakes_{1};  // above 0: a step is waiting or running; the handler holds the first
  std::atomic<bool> gone_{false};  // the client left
  bool started_ = false;  // bytes of a stream are out, so a status can not be sent any more
  bool ended_ = false;
  std::mutex generations_mutex_;  // guards the `generation` handles against leaving
};

}  // namespace tenon::api

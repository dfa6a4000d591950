// The door of engine: the one thread that touches MLX, behind bytes-only calls.
// Threads: every method may be called from any thread. submit() puts a command on a bounded queue
// (full: overloaded) and returns at once; events come through the Generation's channel, whose
// capacity covers the whole reply, so the engine never waits for a reader. Loading happens inside
// load_engine() with progress. Units: tokens, bytes, milliseconds. No MLX type appears here, so
// other rooms and fakes need none.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/channel.h"
#include "base/generation.h"
#include "base/json.h"
#include "base/result.h"
#include "text/text.h"

namespace tenon::engine {

// What a request may know about a loaded model; immutable, shared.
struct Model {
  std::string name;         // as clients say it
  int64_t created = 0;      // unix seconds of the checkpoint's newest file
  int context_len = 0;      // window in tokens: prompt + output
  int vocab_size = 0;       // width of the logits
  int64_t prompt_bytes_max = 0;  // longer text cannot fit the window whatever it says; 0: unknown
  // Union of all ends declared by config, generation config and tokenizer; sorted.
  std::vector<int32_t> end_ids;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: ids only
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: no chat route
  std::string bos_token, eos_token;  // spellings for the template
  SamplingParams sampling;  // defaults: flags over generation_config.json over built-in
  std::string profile_id;
  std::string kernels;  // "mlx" or "tenon"
  std::string dtype;  // of activations
  std::string device;  // "cpu", "cuda", "metal"
  std::string draft;  // the draft source: "none", "ngram", ...
};

constexpr int kDraftDepthMax = 64;  // drafts of one row in one round

struct GenerationRequest {
  std::string model;  // empty: the default one
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  int max_tokens = 0;  // >= 1; clipped to the window by the engine
  bool ignore_end = false;  // go on past end ids
  int top_logprobs = -1;  // -1: none wanted; 0..20: the chosen token's, plus so many of the best
  bool want_progress = false;  // Progress events during prefill
  bool want_logits = false;  // Logits events: every position's row, for `tenon logits`
  // Drafts in every round; 0: none, -1: as they pay. Changes no token.
  int draft_depth = -1;
  int64_t deadline_ms = 0;  // 0: none; else from submit, after which the request ends with an error
  std::function<void()> on_event;  // runs on the engine thread after each event; must be quick
};

// Events of one generation, in order; exactly one Finished, last.
struct Progress {  // prompt tokens computed so far
  int computed = 0;
  int total = 0;
};
struct Token {
  int32_t id = 0;
  bool end = false;  // an end id: counts as a completion token, has no text
  float logprob = 0;  // after bias, penalties and masks; before temperature and filters
  std::vector<TokenLogprob> top;
};
struct Logits {  // float32 row that follows position `position`
  int position = 0;
  std::vector<float> row;
};
struct Usage {
  int prompt_tokens = 0;
  int completion_tokens = 0;  // every token drawn, an end id included
  int cached_tokens = 0;
};
// Of speculative decoding; changes no token.
struct DraftStats {
  uint64_t rounds = 0;  // that verified drafts
  uint64_t drafted = 0, accepted = 0;
  std::vector<uint64_t> drafted_at, accepted_at;  // by position in the round
  void add(int num_drafted, int num_accepted);
  void add(const DraftStats& other);
};
struct Timing {
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
};
struct Finished {
  FinishReason reason = FinishReason::stop;
  Error error;  // meaningful when reason is error
  Usage usage;
  Timing timing;
  DraftStats drafts;
};
using Event = std::variant<Progress, Token, Logits, Finished>;

// One running request, shared by the engine and its reader. Dropping the reader's handle does not
// cancel.
class Generation {
 public:
  explicit Generation(size_t capacity, std::function<void()> on_event)
      : events(capacity, std::move(on_event)) {}
  Channel<Event> events;
  // The row is freed within one step (or one prefill chunk); a Finished{cancelled} follows.
  void cancel() { cancel_.set(); }
  bool is_cancelled() const { return cancel_.is_set(); }

 private:
  CancelFlag cancel_;
};

struct Stats {
  bool ready = false;
  int running = 0;  // rows in the batch
  int waiting = 0;  // admitted, no row yet
  uint64_t requests = 0, finished = 0, failed = 0, cancelled = 0, refused = 0;
  uint64_t prompt_tokens = 0, completion_tokens = 0, steps = 0;
  uint64_t kv_bytes = 0, weight_bytes = 0;
  uint64_t kv_copies = 0;  // whole-buffer copies of KV by donation failures; 0 under `tenon`
  double prefill_tok_s = 0, decode_tok_s = 0;  // of recent steps
  DraftStats drafts;
};

class Engine {
 public:
  virtual ~Engine() = default;  // stops: running requests end with unavailable
  virtual std::vector<std::shared_ptr<const Model>> models() const = 0;
  // Empty name: the default model. Errors: not_found, reason model_not_found.
  virtual Result<std::shared_ptr<const Model>> model(std::string_view name) const = 0;
  // Errors: invalid (empty prompt, id outside the vocabulary, context_length_exceeded with both
  // numbers), overloaded, unavailable, not_found.
  virtual Result<std::shared_ptr<Generation>> submit(GenerationRequest request) = 0;
  virtual Stats stats() const = 0;
  // No new requests; running ones may finish until the deadline, then are cut. Idempotent.
  virtual void drain(int64_t deadline_ms) = 0;
};

struct EngineOptions {
  std::string model_path;  // directory, .gguf file
  std::string model_name;  // empty: from the path
  std::string device = "auto";  // auto, cpu, cuda, metal
  std::string kernels = "auto";  // auto, mlx, tenon
  std::string dtype = "auto";  // auto, float32, bfloat16, float16
  std::string kv = "auto";  // auto, f32, f16, bf16, q8, q4
  std::string draft = "auto";  // decode::parse_draft_spec, or auto: what the checkpoint brings
  int draft_depth = -1;  // drafts in every round; -1: as they pay
  std::string chat_template_file;  // overrides the checkpoint's
  int threads = 0;  // 0: physical cores
  int context_len = 0;  // 0: the model's, capped by memory
  int max_batch = 8;  // rows in a step
  int max_queue = 256;  // requests admitted beyond the batch
  int prefill_chunk = 0;  // tokens of one row in one step; 0: chosen by gap_ms and measured speed
  int gap_ms = 200;  // aim for the longest wait between a running stream's tokens
  bool start_paused = false;  // steps begin with resume(): all submitted requests meet in one batch
  // Defaults laid over generation_config.json, as JSON fields of the OpenAI request; null: none.
  Json sampling_overrides;
  std::function<void(const std::string& stage, double fraction)> on_progress;  // load; may be empty
};

class LocalEngine : public Engine {
 public:
  virtual void resume() = 0;  // after start_paused
};
// Loads the model and starts the engine thread. Blocks until ready or failed.
Result<std::unique_ptr<LocalEngine>> load_engine(const EngineOptions& options);

// Text to vectors, by a model that reads whole texts. Loaded and used on one thread.
struct Embedding {
  std::vector<float> values;
  int num_tokens = 0;
};
class Embedder {
 public:
  virtual ~Embedder() = default;
  virtual int width() const = 0;
  virtual int context_len() const = 0;  // tokens of one text, the tokenizer's own included
  virtual const char* pooling() const = 0;  // "mean", "cls"
  // One for each text, in order; no text sees another. Errors: too_large (a text, with both
  // numbers), invalid (not UTF-8).
  virtual Result<std::vector<Embedding>> embed(std::span<const std::string> texts) = 0;
};
Result<std::unique_ptr<Embedder>> load_embedder(const EngineOptions& options);

// `tenon info`: what a path is and how it would run, or why it is refused. Loads headers, not
// weights.
Result<Json> inspect(const EngineOptions& options);

}  // namespace tenon::engine

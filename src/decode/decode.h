// The door of decode: one round over a batch of rows: draft -> verify -> accept -> keep or roll
// back. Thread: the engine's; sampling is plain C++ over float32 rows, the same on every device.
// Units: positions and steps are tokens; step i of a request is its i-th drawn token, whatever drew
// it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/generation.h"
#include "base/result.h"
#include "graph/graph.h"

namespace tenon::decode {

// ---- The step sampler (sampler.cpp): logits -> bias, penalties -> log-softmax -> filters -> draw.

struct Drawn {
  int32_t id = 0;
  float logprob = 0;  // after bias, penalties and masks; before temperature and filters
  std::vector<TokenLogprob> top;  // best first; empty unless asked for
};

// One request's sampling settings, ready to use at any step. A draw depends on the logits, the
// settings, the history and (seed, choice, step) only.
class StepSampler {
 public:
  // num_words: ids from there on are padding of the model's head, and as if they were not there;
  // 0: none are.
  StepSampler(SamplingParams params, int top_logprobs, int num_words = 0);
  // `logits`: one row [V]. `history`: prompt and every token drawn before this step.
  // Errors: internal when the row holds NaN or nothing finite is left.
  Result<Drawn> draw(std::span<const float> logits, std::span<const int32_t> history,
                     uint32_t step);
  // The id alone: what draw() of these logits would give. -1 where it would fail.
  int32_t guess(std::span<const float> logits, std::span<const int32_t> history, uint32_t step);
  // The draw is the largest logit: no penalty, no bias, temperature 0.
  bool is_argmax() const;

 private:
  Result<Drawn> draw(std::span<const float> logits, std::span<const int32_t> history, uint32_t step,
                     int top_logprobs);
  SamplingParams params_;
  int top_logprobs_;
  size_t num_words_;
  std::vector<float> work_;  // logits, then log-probabilities
  std::vector<int32_t> candidates_;  // ids still in the running
  std::vector<float> weights_;  // of candidates, before they are summed
};

// ---- Draft sources (drafts/<source>.cpp, drafts.def). A source proposes; only the target's logits
// decide, so no source can change a token. One object per loaded model; a row is its slot in the
// target's caches.

// A row one behind: every token of `known` but the last is in the target's caches.
struct DraftRow {
  int slot = 0;
  std::span<const int32_t> known;  // prompt and output
  int num_drafts = 0;  // at most so many, at least 1
  uint32_t step = 0;  // of the first draft
  StepSampler* sampler = nullptr;
};

// What a round left of a row in the target's caches: positions [from, to), new in this round.
struct KeptRow {
  int slot = 0;
  std::span<const int32_t> known;  // before the round drew
  std::span<const int32_t> accepted;  // drafts behind `known` that stay
  int from = 0, to = 0;
  int start = 0;  // of position `from` on the flat axis of the taps
  int32_t token(int position) const {
    const int behind = position - static_cast<int>(known.size());
    return behind < 0 ? known[position] : accepted[behind];
  }
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  virtual const char* name() const = 0;
  virtual int default_depth() const = 0;  // drafts in a round when the depth is pinned to "on"
  virtual int max_depth() const = 0;  // drafts in a round that may ever pay
  virtual bool is_free() const { return false; }  // a draft costs nothing worth counting
  virtual std::vector<int> taps() const { return {}; }  // of the target, see graph::Taps
  virtual uint64_t weight_bytes() const { return 0; }
  virtual double bytes_per_token() const { return 0; }  // of caches of its own, one row
  virtual uint64_t row_bytes() const { return 0; }
  virtual uint64_t cache_bytes() const { return 0; }  // held now, all rows
  virtual void open(int slot) { static_cast<void>(slot); }
  virtual void close(int slot) { static_cast<void>(slot); }  // a closed slot: nothing
  // Proposals of each row, in its order; fewer than asked for, or none, is fine.
  virtual std::vector<std::vector<int32_t>> draft(std::span<const DraftRow> rows) = 0;
  // After every round, prefill included; taps hold what taps() asked for of all rows.
  virtual void keep(std::span<const KeptRow> rows, const graph::Taps& taps) {
    static_cast<void>(rows), static_cast<void>(taps);
  }
};

// "source", "source:path", "source:key=value,..." or "source:path,key=value,...".
struct DraftSpec {
  std::string source;
  std::string path;
  std::map<std::string, std::string> options;
};
Result<DraftSpec> parse_draft_spec(std::string_view text);

// What a source builds from. `load_model`: a whole model for drafting, its words checked against
// the target's. `load_head`: the target's own head when the path is empty. `load_block`: a drafter
// of blocks, checked against the target.
struct DraftContext {
  graph::Model& target;
  std::function<Result<std::unique_ptr<graph::Model>>(const std::string& path)> load_model;
  std::function<Result<std::unique_ptr<graph::DraftHead>>(const std::string& path)> load_head;
  std::function<Result<std::unique_ptr<graph::BlockDrafter>>(graph::BlockLayout layout,
                                                             const std::string& path)>
      load_block = {};
};
// Errors: unsupported, naming what there is; invalid (an option); what does not fit the target.
Result<std::unique_ptr<DraftSource>> make_draft_source(const DraftSpec& spec,
                                                       const DraftContext& context);
std::vector<std::string> draft_sources();

// ---- How many drafts are worth a verification (depth.cpp).

// Seconds of one step by its number of tokens, measured on this device with this model.
class StepCost {
 public:
  // Runs steps of 1, 2, 4, ... tokens in slot 0, which must be closed, and closes it; stops early
  // when they take long.
  static StepCost measure(graph::Model& model);
  explicit StepCost(std::vector<std::pair<int, double>> points) : points_(std::move(points)) {}
  double at(int num_tokens) const;  // between and past the points: along a line

 private:
  std::vector<std::pair<int, double>> points_;  // by tokens, seconds never falling
};

// A row's record of drafts that came true; the past fades.
class Acceptance {
 public:
  explicit Acceptance(double prior) : right_(kPriorWeight * prior), tried_(kPriorWeight) {}
  void observe(int num_drafted, int num_accepted);
  // That the next draft is right, given the last. Text that is copied ends without notice, so a
  // long record of success counts for less than certainty.
  double rate() const { return right_ / (tried_ + kDoubt); }

 private:
  static constexpr double kPriorWeight = 2, kFade = 0.9, kDoubt = 1;
  double right_, tried_;
};

struct DepthRow {
  double rate = 0;  // Acceptance::rate()
  int max_depth = 0;
};
// Depths that make most tokens a second of a step that has `num_tokens` in any case, of which
// `num_draws` rows draw one; draft_s: seconds of one more draft of all rows.
std::vector<int> choose_depths(const StepCost& cost, int num_tokens, int num_draws, double draft_s,
                               std::span<const DepthRow> rows);

// ---- The round (round.cpp).

struct RowWork {
  int slot = 0;
  std::span<const int32_t> known;  // prompt and output so far; computed < known.size()
  int computed = 0;  // tokens already in the caches
  int count = 0;  // tokens to compute now, from `computed`
  int num_drafts = 0;  // at most; more than 0 only for a row one behind
  bool guesses = false;  // nothing to verify, but say whether a draft would have been right
  int step = 0;  // index of the next token to draw
  StepSampler* sampler = nullptr;
  bool drafts_open = false;  // the row is open in the draft source
  bool want_logits = false;  // copy out every computed position's row
};

struct RowOutcome {
  int computed = 0;  // tokens of `known` + drawn now in the caches
  std::vector<Drawn> drawn;  // empty while the row is still behind
  int num_drafted = 0;
  int num_accepted = 0;
  std::optional<bool> guessed;  // a draft that was not verified: was it right
  std::vector<std::vector<float>> logits;  // want_logits: one row per position kept
  std::optional<Error> error;  // this row alone failed (NaN logits); its caches must be closed
};

struct RoundOutcome {
  std::vector<RowOutcome> rows;
  double draft_s = 0;  // spent on proposing, and the longest chain it made
  int draft_len = 0;
  std::string draft_error;  // the source failed: its rows must be closed there; tokens are right
};

// Computes every row's tokens in one forward, draws where a row reached its last known token,
// verifies drafts, and leaves each row's caches holding exactly `computed` tokens. `source` may be
// null. Throws when the forward fails: then every row's caches are suspect and must be closed.
RoundOutcome run_round(graph::Model& model, DraftSource* source, std::span<RowWork> rows);

}  // namespace tenon::decode

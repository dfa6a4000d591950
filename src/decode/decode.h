// The door of decode: one round over a batch of rows: draft -> verify -> accept -> keep or roll
// back. Thread: the engine's; sampling is plain C++ over float32 rows, the same on every device.
// Units: positions and steps are tokens; step i of a request is its i-th drawn token, whatever drew
// it.
#pragma once
#include <cstdint>
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
  StepSampler(SamplingParams params, int top_logprobs);
  // `logits`: one row [V]. `history`: prompt and every token drawn before this step.
  // Errors: internal when the row holds NaN or nothing finite is left.
  Result<Drawn> draw(std::span<const float> logits, std::span<const int32_t> history,
                     uint32_t step);

 private:
  SamplingParams params_;
  int top_logprobs_;
  std::vector<float> work_;  // logits, then log-probabilities
  std::vector<int32_t> candidates_;  // ids still in the running
  std::vector<float> weights_;  // of candidates, before they are summed
};

// ---- Draft sources (drafts/<source>.cpp, drafts.def).

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  virtual const char* name() const = 0;
  // Proposes up to n tokens that may follow `known` (prompt and output so far). Fewer is fine.
  virtual std::vector<int32_t> draft(std::span<const int32_t> known, int n) = 0;
};
// Errors: unsupported, naming what there is.
Result<std::unique_ptr<DraftSource>> make_draft_source(const std::string& spec);
std::vector<std::string> draft_sources();

// ---- The round (round.cpp).

struct RowWork {
  int slot = 0;
  std::span<const int32_t> known;  // prompt and output so far; computed < known.size()
  int computed = 0;  // tokens already in the caches
  int count = 0;  // tokens to compute now, from `computed`
  int num_drafts = 0;  // most drafts worth verifying; 0 unless the row reaches its last token
  int step = 0;  // index of the next token to draw
  StepSampler* sampler = nullptr;
  DraftSource* source = nullptr;  // may be null: no drafts
  bool want_logits = false;  // copy out every computed position's row
};

struct RowOutcome {
  int computed = 0;  // tokens of `known` + drawn now in the caches
  std::vector<Drawn> drawn;  // empty while the row is still behind
  int num_drafted = 0;
  int num_accepted = 0;
  std::vector<std::vector<float>> logits;  // want_logits: one row per position kept
  std::optional<Error> error;  // this row alone failed (NaN logits); its caches must be closed
};

// Computes every row's tokens in one forward, draws where a row reached its last known token,
// verifies drafts, and leaves each row's caches holding exactly `computed` tokens. Throws when the
// forward fails: then every row's caches are suspect and must be closed.
std::vector<RowOutcome> run_round(graph::Model& model, std::span<RowWork> rows);

}  // namespace tenon::decode

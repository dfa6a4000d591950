// One measured case of `tenon bench`: a batch of random prompts through the engine, timed by its
// events.
#pragma once
#include <vector>

#include "engine/engine.h"

namespace tenon::cli {

struct BenchCase {
  int prompt_len = 512;
  int gen_len = 128;
  int batch = 1;
};
struct BenchSample {
  double prefill_tok_s = 0;  // all prompts' tokens / time until every row had its first token
  // All rows' tokens from then until the first row's last / that time; 0: the rows did not overlap.
  double decode_tok_s = 0;
  double ttft_ms = 0;  // median over the rows
};
// `seed` chooses the ids, so that no run repeats another's prompt. Ends are ignored.
Result<BenchSample> bench_once(engine::Engine& engine, const engine::Model& model,
                               const BenchCase& what, uint64_t seed);

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> values);  // values not empty

}  // namespace tenon::cli

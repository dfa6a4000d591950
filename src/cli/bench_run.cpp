#include "cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "base/check.h"

namespace tenon::cli {

namespace {

using Clock = std::chrono::steady_clock;

// Which generation got an event, and when: stamped on the engine's thread, so a busy reader costs
// no time.
struct Arrival {
  size_t row;
  Clock::time_point at;
};

struct Row {
  std::shared_ptr<engine::Generation> generation;
  Clock::time_point submitted;
  std::vector<Clock::time_point> tokens;
  bool finished = false;
};

std::vector<int32_t> random_ids(int count, int vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return ids;
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Decoding is timed while every row decodes: from the last row's first token to the first row's
// last.
BenchSample summarize(const std::vector<Row>& rows, const BenchCase& what) {
  const Clock::time_point start = rows[0].submitted;
  Clock::time_point all_first = start, first_end = rows[0].tokens.back();
  std::vector<double> first_ms;
  for (const Row& row : rows) {
    all_first = std::max(all_first, row.tokens.front());
    first_end = std::min(first_end, row.tokens.back());
    first_ms.push_back(seconds(row.tokens.front() - row.submitted) * 1000);
  }
  int64_t between = 0;
  for (const Row& row : rows) {
    between += std::count_if(row.tokens.begin(), row.tokens.end(), [&](Clock::time_point at) {
      return at > all_first && at <= first_end;
    });
  }
  BenchSample sample;
  sample.prefill_tok_s =
      what.prompt_len * static_cast<double>(rows.size()) / seconds(all_first - start);
  const double decode_s = seconds(first_end - all_first);
  sample.decode_tok_s = decode_s > 0 ? static_cast<double>(between) / decode_s : 0;
  sample.ttft_ms = spread_of(first_ms).median;
  return sample;
}

Status take_event(Row& row, Clock::time_point at) {
  std::optional<engine::Event> event = row.generation->events.try_pop();
  if (!event) return {};
  if (std::holds_alternative<engine::Token>(*event)) row.tokens.push_back(at);
  auto* finished = std::get_if<engine::Finished>(&*event);
  if (!finished) return {};
  row.finished = true;
  if (finished->reason == FinishReason::error) return finished->error;
  if (row.tokens.empty()) return internal("a row ended without a token");
  return {};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  bool odd = values.size() % 2 == 1;
  double median = odd ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

Result<BenchSample> bench_once(engine::Engine& engine, const engine::Model& model,
                               const BenchCase& what, uint64_t seed) {
  std::vector<Row> rows(static_cast<size_t>(what.batch));
  size_t events_max = rows.size() * static_cast<size_t>(what.gen_len + 8);
  auto arrivals = std::make_shared<Channel<Arrival>>(events_max);
  for (size_t i = 0; i < rows.size(); ++i) {
    engine::GenerationRequest request;
    request.prompt_ids = random_ids(what.prompt_len, model.vocab_size, seed * 1000 + i);
    request.sampling.temperature = 0;
    request.ignore_end = true;
    request.max_tokens = what.gen_len;
    request.on_event = [arrivals, i] { (void)arrivals->push({i, Clock::now()}); };
    rows[i].submitted = Clock::now();
    TENON_TRY(rows[i].generation, engine.submit(std::move(request)));
  }
  size_t running = rows.size();
  while (running > 0) {
    Arrival arrival = *arrivals->pop();
    Row& row = rows[arrival.row];
    TENON_OK(take_event(row, arrival.at));
    if (row.finished) --running;
  }
  return summarize(rows, what);
}

}  // namespace tenon::cli

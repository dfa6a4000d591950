#include "cli/text_rows.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

namespace tenon::cli {

std::vector<TextWindow> cut_windows(size_t num_tokens, size_t context, size_t stride) {
  std::vector<TextWindow> windows;
  size_t scored = 0;  // tokens before this one are done
  for (size_t begin = 0; scored < num_tokens; begin += stride) {
    const size_t end = std::min(begin + context, num_tokens);
    const size_t first = std::max(scored, begin + 1);
    if (first < end) windows.push_back({begin, first, end});
    scored = end;
  }
  return windows;
}

Result<std::string> read_text_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in) return not_found("--file {}: cannot read it", file);
  return text;
}

Result<std::vector<int32_t>> encode_text(const engine::Model& model, const std::string& text) {
  if (!model.tokenizer) return unsupported("{}: no tokenizer, so no text", model.name);
  return model.tokenizer->encode_with_specials(text);
}

Status for_each_row(engine::Engine& engine, std::vector<int32_t> ids, const OnRow& on_row) {
  engine::GenerationRequest request;
  const size_t num_rows = ids.size();
  request.prompt_ids = std::move(ids);
  request.sampling.temperature = 0;
  request.want_logits = true;
  request.ignore_end = true;
  request.max_tokens = 1;
  TENON_TRY(auto generation, engine.submit(std::move(request)));
  size_t next = 0;
  for (;;) {
    std::optional<engine::Event> event = generation->events.pop();
    if (!event) return internal("the engine ended without a last event");
    if (auto* row = std::get_if<engine::Logits>(&*event)) {
      if (static_cast<size_t>(row->position) != next)
        return internal("logits of position {} came where {} was due", row->position, next);
      TENON_OK(on_row(next++, std::move(row->row)));
    }
    if (auto* finished = std::get_if<engine::Finished>(&*event)) {
      if (finished->reason == FinishReason::error) return finished->error;
      break;
    }
  }
  if (next != num_rows) return internal("{} of {} rows came", next, num_rows);
  return {};
}

double log_sum_exp(std::span<const float> row) {
  double max = -INFINITY;
  for (float x : row) {
    if (std::isnan(x)) return NAN;
    max = std::max(max, static_cast<double>(x));
  }
  double sum = 0;
  for (float x : row) sum += std::exp(x - max);
  return max + std::log(sum);
}

}  // namespace tenon::cli

// The logits that a model gives over a text, window by window: what perplexity and verify read.
// Thread: the main one. Units: tokens. Errors: those of the engine and of reading the file.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace tenon::cli {

// Tokens [begin, end) of a text in one window; those from `first` on are scored, given all before
// them in the window. begin < first < end.
struct TextWindow {
  size_t begin, first, end;
};
// Windows of `context` tokens, each `stride` (at most context) after the last, so that every token
// is scored once, but for the first of the text and, without overlap, of each window.
std::vector<TextWindow> cut_windows(size_t num_tokens, size_t context, size_t stride);

Result<std::string> read_text_file(const std::string& file);
// Ids of a text as the tokenizer frames it (bos where the model has one).
Result<std::vector<int32_t>> encode_text(const engine::Model& model, const std::string& text);

// Computes `ids` as one prompt. on_row(i, row): the float32 logits [V] that follow ids[0..i], i
// ascending.
using OnRow = std::function<Status(size_t i, std::vector<float> row)>;
Status for_each_row(engine::Engine& engine, std::vector<int32_t> ids, const OnRow& on_row);

// log(sum(exp(row))), in double. NaN when the row holds one.
double log_sum_exp(std::span<const float> row);

}  // namespace tenon::cli

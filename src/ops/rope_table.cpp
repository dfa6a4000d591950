#include "ops/rope_table.h"

#include <cmath>

namespace tenon::ops {

namespace {
float inverse_of(double base, int i, int dims) {
  return static_cast<float>(std::pow(base, -2.0 * i / dims));
}
}  // namespace

RopeTable::RopeTable(const Rope& rope) : rope_(rope) {
  if (rope.dynamic_max_positions > 0) return;
  const int half = rope.dims / 2;
  inverse_.resize(half);
  if (rope.freqs) {
    mx::array freqs = mx::contiguous(mx::astype(*rope.freqs, mx::float32));
    mx::eval(freqs);
    for (int i = 0; i < half; ++i) inverse_[i] = 1.0f / freqs.data<float>()[i];
  } else {
    for (int i = 0; i < half; ++i) inverse_[i] = inverse_of(*rope.base, i, rope.dims);
  }
  rope_.freqs.reset();  // an array must not outlive the engine's thread in a kernel
}

// Dynamic NTK: a token is turned by the base of the sequence that ends with it, so that its keys do
// not depend on how the prompt was cut.
double RopeTable::base_at(int position) const {
  const double longest = std::max(position + 1, rope_.dynamic_max_positions);
  const double growth =
      rope_.dynamic_factor * longest / rope_.dynamic_max_positions - (rope_.dynamic_factor - 1);
  return static_cast<float>(*rope_.base * std::pow(growth, rope_.dims / (rope_.dims - 2.0)));
}

void RopeTable::fill(int position, float* row) const {
  const int half = rope_.dims / 2;
  const float at = static_cast<float>(position) * rope_.scale;
  const double base = inverse_.empty() ? base_at(position) : 0;
  for (int i = 0; i < half; ++i) {
    const float angle = at * (inverse_.empty() ? inverse_of(base, i, rope_.dims) : inverse_[i]);
    row[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * rope_.input_scale;
    row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * rope_.input_scale;
  }
}

const float* RopeTable::row(int position) {
  const size_t block = position / kBlockRows;
  const int width = rope_.dims / 2 * 2;
  if (block >= blocks_.size()) blocks_.resize(block + 1);
  if (!blocks_[block]) {
    blocks_[block] = std::make_unique_for_overwrite<float[]>(size_t{kBlockRows} * width);
    for (int i = 0; i < kBlockRows; ++i)
      fill(static_cast<int>(block) * kBlockRows + i,
           blocks_[block].get() + static_cast<size_t>(i) * width);
  }
  return blocks_[block].get() + static_cast<size_t>(position % kBlockRows) * width;
}

}  // namespace tenon::ops

// Cosines and sines of every position a model has met, for the CPU kernels.
// Rows never move, so a dispatched kernel may read them while later ones are added. Thread: rows
// are made on the engine's. Angles are float32 products as in other engines; their cosine and sine
// are rounded from float64.
#pragma once
#include <vector>

#include "ops/ops.h"

namespace tenon::ops {

class RopeTable {
 public:
  explicit RopeTable(const Rope& rope);
  // [dims / 2] cosines, then as many sines.
  const float* row(int position);
  int dims() const { return rope_.dims; }
  bool traditional() const { return rope_.traditional; }

 private:
  static constexpr int kBlockRows = 256;
  void fill(int position, float* row) const;
  double base_at(int position) const;
  Rope rope_;
  std::vector<float> inverse_;  // [dims / 2] angular steps; empty: by position (dynamic)
  std::vector<std::unique_ptr<float[]>> blocks_;
};

}  // namespace tenon::ops

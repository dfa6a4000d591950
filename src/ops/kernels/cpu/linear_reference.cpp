// One output of one row at a time. Weights are read through the matrix's own layout, not unpacked
// to floats: integer sums must meet the codes.
#include <algorithm>
#include <cmath>

#include "ops/kernels/cpu/math_reference.h"
#include "ops/kernels/cpu/reference.h"

namespace tenon::cpu::reference {

namespace {

float dot(const PackedMatrix& w, int output, const LinearArgs& a, int m) {
  const Packing& p = w.packing;
  float acc = 0;
  w.visit_row(output, [&](const StoredGroup& s, int g, int k0, int len) {
    if (p.is_integer()) {
      const QuantizedRow& row = a.quantized[m];
      int32_t sum = -p.zero * row.code_sum[g];
      for (int k = 0; k < len; ++k)
        sum += (p.code == CodeType::fp4 ? kFp4Doubled[s.codes[k]] : s.codes[k]) * row.codes[k0 + k];
      acc = std::fma(s.scale * row.scale[g], static_cast<float>(sum), acc);
      if (p.has_min) acc = std::fma(s.min, row.sum[g], acc);
    } else {
      const float* x = a.x + static_cast<size_t>(m) * a.x_stride + k0;
      const auto* codes = reinterpret_cast<const std::byte*>(s.codes);
      float part = 0;
      for (int k = 0; k < len; ++k)
        part = std::fma(load_code(p.code, codes + k * (p.bits / 8)), x[k], part);
      acc = p.scale == ScaleType::none ? acc + part : std::fma(s.scale, part, acc);
    }
  });
  return acc;
}

}  // namespace

void linear(const LinearArgs& a) {
  const PackedMatrix& w = *a.w;
  const int end = std::min(a.tile_end * kTileOutputs, w.out);
  for (int m = 0; m < a.rows; ++m)
    for (int o = a.tile_begin * kTileOutputs; o < end; ++o) {
      const float sum = dot(w, o, a, m);
      a.out[static_cast<size_t>(m) * a.out_stride + o] = w.bias.empty() ? sum : sum + w.bias[o];
    }
}

}  // namespace tenon::cpu::reference

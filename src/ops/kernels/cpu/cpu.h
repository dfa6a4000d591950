// The door of the CPU kernels: arithmetic over plain memory, without MLX.
//
// The row law holds by construction: every output is computed by one fixed order of operations that
// knows nothing of other rows, of tiles, of threads or of the instruction set.
//   - Quantized products are integer sums (exact in any order) of 16-bit activation codes and
//     unsigned weight codes, one sum a group, joined in float by ascending group.
//   - A packed tile holds 16 outputs side by side, so a vector lane is an output: no horizontal
//   sum.
//   - Other float sums run over 16 virtual lanes and a fixed tree, at any vector width.
//   - Fused multiply-add is written where it is meant; the compiler contracts nothing.
// All targets with fused multiply-add agree bit for bit with the scalar reference.
//
// Thread: a Table's functions are pure and re-entrant. Units: elements unless a name says bytes.
// Errors: none at run time; shapes are checked where matrices and pools are made.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/kernels/cpu/kv_pool.h"
#include "ops/kernels/cpu/packed.h"
#include "ops/kernels/cpu/pool.h"
#include "ops/kernels/cpu/routing.h"

namespace tenon::cpu {

// One row of activations in 16-bit codes: x[k] ~ scale[k / group] * codes[k]. A group that holds
// NaN or an infinity has scale NaN, so that every product with it is NaN.
struct QuantizedRow {
  int16_t* codes;  // [in]
  float* scale;  // [in / group]
  float* sum;  // [in / group]: scale * (sum of the group's codes)
  int32_t* code_sum;  // [in / group]
};

// `rows` quantized (integer codes) or float rows (float codes) against tiles
// [tile_begin, tile_end): out[m * out_stride + o] for every output o of those tiles.
struct LinearArgs {
  const PackedMatrix* w;
  int rows;
  const QuantizedRow* quantized;  // [rows]; null for matrices with float codes
  const float* x;  // [rows, in], stride x_stride; null for integer codes
  int x_stride;
  int tile_begin, tile_end;
  float* out;
  int out_stride;
};

// silu: x / (1 + exp(-x)). gelu: x * (0.5 * (1 + erf(x * sqrt(1/2)))). gelu_tanh: 0.5 * x * (1 +
// tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
enum class Activation { silu, gelu, gelu_tanh };

// Attention of `num_queries` queries over one span of one row's keys, for one key/value head. The
// state that each query gets: maximum, sum and weighted values of its scores in the span.
struct AttendArgs {
  const KvLayout* kv;
  std::byte* const*
      pages;  // of this row and head's layer, in order: page i holds keys [64i, 64i+64)
  int kv_head;
  int num_queries;
  const float* const* q;  // [num_queries] -> [k_dim], scaled
  const int* positions;  // [num_queries]: sees keys [max(0, position - window + 1), position]
  int window;  // 0: all
  float softcap;  // 0: none
  int tile_begin, tile_end;  // tiles (= pages) of this span
  float* max;  // [num_queries]; -inf (and sum 0) where the query sees none of the keys
  float* sum;  // [num_queries]
  float* values;  // [num_queries, v_dim]
};

// One token of one head of the gated delta rule. The state is [k_dim, v_dim]: a lane is a value
// dimension, so its sums run by ascending k without a horizontal step.
//   S *= decay;  m = sum_k S[k] key[k];  S += key (outer) ((value - m) * beta);  y = sum_k S[k]
//   q[k]
struct DeltaArgs {
  int k_dim, v_dim;
  float* state;  // [k_dim, v_dim], updated
  const float* query;  // [k_dim]
  const float* key;  // [k_dim]
  const float* value;  // [v_dim]
  float decay, beta;
  float* y;  // [v_dim]
};

// The kernels of one instruction set. `tree` is the sum of 16 lanes by halves: i + (i + 8), then
// i + (i + 4), i + (i + 2), i + (i + 1). exp, tanh, erf, log1p: math-inl.h. y may be any of the
// rows x, gate, up, a and b it is made of.
struct Table {
  const char* name;  // "reference", "sse4", "avx2", "avx3", "avx3_dl", "neon", ...
  // A group's largest |x| is `amax`; below 2^-100 all is zero. scale = amax / 32767, codes =
  // nearest even of x * (32767 / amax).
  void (*quantize)(const float* x, int in, int group, const QuantizedRow& row);
  // y = x * (1 / sqrt(tree(lane k % 16: fma(x, x, lane)) / n + eps)) * weight. weight may be
  // null.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  // mean = tree(lane k % 16: lane + x) / n; variance = tree(lane k % 16: fma(c, c, lane)) / n, c =
  // x - mean; y = c * (1 / sqrt(variance + eps)) * weight + bias. weight and bias may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n,
                     float* y);
  // y = act(gate) * up
  void (*gated)(Activation act, const float* gate, const float* up, int n, float* y);
  // y = act(x)
  void (*activate)(Activation act, const float* x, int n, float* y);
  // y = x * (1 / (1 + exp(-gate)))
  void (*sigmoid_gate)(const float* gate, const float* x, int n, float* y);
  // y = cap * tanh(x / cap)
  void (*softcap)(float cap, const float* x, int n, float* y);
  // y = s * x
  void (*scale)(float s, const float* x, int n, float* y);
  // e = exp(x - maximum); y = e / tree(lane k % 16: lane + e). NaN everywhere where x holds NaN or
  // +inf, or nothing above -inf.
  void (*softmax)(const float* x, int n, float* y);
  // y = exp((x - shift) / divisor)
  void (*exps)(const float* x, float shift, float divisor, int n, float* y);
  // The lowest index of the largest; -1 where x holds NaN or nothing above -inf.
  int32_t (*argmax)(const float* x, int n);
  // y = fma(scale, x, y): experts of a token, by ascending id.
  void (*add_scaled)(float scale, const float* x, int n, float* y);
  // One token of a depthwise convolution of `taps` taps and its SiLU. rows[i] [n] is the input of
  // `taps - 1 - i` tokens ago, weights are [taps, n]: y = silu(fma over ascending i).
  void (*conv)(const float* const* rows, const float* weights, int taps, int n, float* y);
  // Products by ascending k, each fused: m = fma(S * decay, key, m), S = fma(delta, key, S *
  // decay), y = fma(S, query, y).
  void (*delta)(const DeltaArgs& args);
  // The gates of n heads of the delta rule: decay = exp(-exp(a_log) * softplus(a + dt_bias)), beta
  // = 1 / (1 + exp(-b)); softplus(x) = max(x, 0) + log1p(exp(-|x|)).
  void (*delta_gates)(const float* a, const float* b, const float* a_log, const float* dt_bias,
                      int n, float* decay, float* beta);
  // y = a + b
  void (*add)(const float* a, const float* b, int n, float* y);
  // Integer codes, by ascending group: acc = fma(scale_w * scale_x, float(sum of code products -
  // zero * code_sum), acc); with minima acc = fma(min, sum, acc).
  // Float codes, by ascending group of the packing: part = fma(w, x, part) by ascending k; then
  // acc = fma(scale, part, acc), or acc + part without scales. Both: out = acc, or acc + bias.
  void (*linear)(const LinearArgs& args);
  // Keys k and values v are what is stored, or scale * code + bias, rounded twice, as mx.dequantize
  // has it. Tile by tile: score = fma(q[d], k[d], score) by ascending d, soft-capped; e = exp(score
  // - the tile's maximum, NaN left out and a zero made positive); sum = tree(lane j: e[j] + e[j +
  // 16] + e[j + 32] + e[j + 48]); values[d] = fma(e, v[d], values[d]) by ascending key. Tiles are
  // merged in order.
  void (*attend)(const AttendArgs& args);
  // Folds the state of a later part of the keys into an earlier one's. An empty state has sum 0 and
  // changes nothing (a NaN sum is not empty: NaN must reach the output). Else m = larger maximum, a
  // = exp(max - m), b = exp(part_max - m), sum = fma(part_sum, b, sum * a), and values likewise.
  void (*merge)(float* max, float* sum, float* values, float part_max, float part_sum,
                const float* part_values, int v_dim);
  // out = values / sum
  void (*finish)(float sum, const float* values, int v_dim, float* out);
  // Pairs (a, b) of the first `dims` elements, split halves or interleaved when traditional:
  // (fma(-b, sin, a * cos), fma(a, sin, b * cos)).
  void (*rotate)(float* x, const float* cos, const float* sin, int dims, bool traditional);
  // One token's keys [num_kv_heads, k_dim] and values [num_kv_heads, v_dim] to `slot` of a page.
  // Halves are rounded to nearest even. Codes are those of mx.quantize on float32: of a group, edge
  // = its minimum or maximum, the larger in magnitude (the maximum on ties); scale = max((maximum -
  // minimum) / code_max, 1e-7), negative unless the edge is the minimum; steps = nearest even of
  // edge / scale; then scale = edge / steps and bias = edge, or bias = 0 when steps is 0; codes =
  // nearest even of (x - bias) / scale, at least 0 and at most code_max. A group that holds NaN or
  // an infinity, or whose range is one, has scale and bias NaN and codes 0.
  void (*store_token)(const KvLayout& layout, std::byte* page, int slot, const float* k,
                      const float* v);
};

// The table of this process: the best target of the machine, or the one TENON_CPU_TARGET names.
// Errors: invalid (a name that this build or machine lacks, with those it has).
Result<const Table*> table();
// Every table this machine can run, the reference first; for tests and for messages.
std::vector<const Table*> all_tables();

}  // namespace tenon::cpu

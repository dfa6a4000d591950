// The door of ops: the arithmetic of a model, as coarse operations that one kernel family
// implements whole. A Kernels object is pinned for the life of a loaded model; graph and cache code
// calls it and never a stock MLX op where a kernel of ours may stand. Coarse on purpose: about four
// calls a layer, so that a family can make each of them one primitive (on a CPU every hand-off to
// MLX costs microseconds).
//
// Layout: activations are [N, E]; N is the sum of the new tokens of all rows in this step, row
// after row. Thread: the engine's. Errors: exceptions whose text begins "[op_name]". Dtypes:
// results have the dtype of x; scalars are built in x's dtype, as Python's weak scalars are.
#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/weight.h"

namespace tenon::ops {

namespace mx = mlx::core;

// One row of a step: tokens [start, start + len) of the flat axis are positions
// [offset, offset + len) of the sequence in cache slot `slot`.
struct RowSlice {
  int slot = 0;
  int start = 0;
  int len = 0;
  int offset = 0;
};
using Rows = std::span<const RowSlice>;

// A loaded matrix [out, in], in whatever form its kernel family wants. Opaque to graph code.
class Matrix {
 public:
  virtual ~Matrix() = default;
  int out = 0;
  int in = 0;
  uint64_t bytes = 0;
};
using MatrixPtr = std::shared_ptr<const Matrix>;

struct RmsNorm {
  mx::array weight;  // [E]
  float eps;
};

// Rotation of the first `dims` of D. Exactly one of base and freqs is set, except dynamic.
// freqs are wavelengths: angle = position / freq.
struct Rope {
  int dims = 0;
  bool traditional = false;  // interleaved pairs; else split halves
  std::optional<float> base;
  float scale = 1.0f;  // of positions
  float input_scale = 1.0f;  // of the rotated dims, before rotation (yarn, longrope)
  std::optional<mx::array> freqs;  // float32 [dims/2]
  // Dynamic NTK: the base grows once a row is longer than max_positions. 0: off.
  int dynamic_max_positions = 0;
  float dynamic_factor = 1.0f;
};

// A gated feed-forward block: down(silu(gate(x)) * up(x)).
struct GatedMlp {
  MatrixPtr gate, up, down;  // [F, E], [F, E], [E, F]
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual const char* name() const = 0;  // "mlx", "tenon"

  // Loading. `dtype` is that of the activations the matrix will meet.
  virtual MatrixPtr load_matrix(const LinearSource& source, mx::Dtype dtype) const = 0;
  virtual mx::array load_vector(const WeightView& view, mx::Dtype dtype) const = 0;

  // ids int32 [N] -> [N, E]
  virtual mx::array embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const = 0;
  virtual mx::array rms_norm(const mx::array& x, const RmsNorm& norm) const = 0;
  // x @ W^T (+ bias): [N, in] -> [N, out]
  virtual mx::array linear(const mx::array& x, const Matrix& w) const = 0;
  // residual + linear(x, w)
  virtual mx::array linear_add(const mx::array& x, const Matrix& w,
                               const mx::array& residual) const = 0;
  // linear(rms_norm(x), w) for each w
  virtual std::vector<mx::array> norm_linear(const mx::array& x, const RmsNorm& norm,
                                             std::span<const MatrixPtr> ws) const = 0;
  // x + mlp(rms_norm(x))
  virtual mx::array norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                                 const GatedMlp& mlp) const = 0;
  // x [N, H, D], each row rotated by its own positions
  virtual mx::array rope(const mx::array& x, Rows rows, const Rope& rope) const = 0;
};

// "auto" takes tenon where every op of the device has a kernel of ours, else mlx.
// Errors: unsupported (unknown name, or tenon where it has no kernels yet).
Result<std::shared_ptr<const Kernels>> make_kernels(const std::string& name, mx::Device device);

// Kernels that load nothing and compute nothing: a graph built with them has had every tensor's
// name and shape checked against its config, and no weight read. For `tenon info`.
std::shared_ptr<const Kernels> make_audit_kernels();

// Bytes of a dense or block format as an array of `dtype`; q* formats are dequantized. A copy.
mx::array dense_array(const WeightView& view, mx::Dtype dtype);
// The array with its stored dtype, byte for byte. Dense formats only. A copy.
mx::array stored_array(const WeightView& view);
Result<mx::Dtype> parse_dtype(
    std::string_view name);  // "f32"/"float32", "bf16"/"bfloat16", "f16"/"float16"
const char* dtype_name(mx::Dtype dtype);

// Weakly typed scalar: a 0-d array in x's dtype.
mx::array scalar_like(float value, const mx::array& x);

}  // namespace tenon::ops

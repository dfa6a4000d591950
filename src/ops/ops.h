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
  // What a kernel family keeps with it (Kernels::prepare): cosines and sines by position.
  std::shared_ptr<void> prepared;
};

// A gated feed-forward block: down(silu(gate(x)) * up(x)).
struct GatedMlp {
  MatrixPtr gate, up, down;  // [F, E], [F, E], [E, F]
};

// The first half of an attention layer: heads of linear(rms_norm(x)).
struct QkvProjection {
  RmsNorm norm;
  MatrixPtr q, k, v;  // [H*D, E], [K*D, E], [K*D, E]
  int num_heads, num_kv_heads, head_dim;
};
struct Qkv {
  mx::array q, k, v;  // [N, H, D], [N, K, D], [N, K, D]
};

struct Attend {
  float scale = 1.0f;
  int window = 0;  // a token sees so many, itself included; 0: all before it
  float softcap = 0.0f;  // 0: none
};

struct KvShape {
  int num_kv_heads = 0;
  int k_head_dim = 0;
  int v_head_dim = 0;
  mx::Dtype dtype = mx::float32;  // of stored keys and values
};

// Keys and values of one layer in pages, which attention appends to in place. Which pages a row has
// is its cache's business. Every use takes the last use's ticket and leaves a new one: a step must
// evaluate it.
class KvPages {
 public:
  virtual ~KvPages() = default;
  virtual int page_tokens() const = 0;
  virtual uint64_t page_bytes() const = 0;
  virtual uint64_t bytes() const = 0;  // of pages taken
  virtual int take() = 0;  // throws std::bad_alloc
  virtual void give(int page) = 0;
  // Appends k and v of each row behind its offset and attends causally. pages[i]: those of rows[i],
  // enough for its new length.
  virtual mx::array attend(const mx::array& q, const mx::array& k, const mx::array& v, Rows rows,
                           std::span<const std::vector<int>> pages, const Attend& how) = 0;
  virtual mx::array ticket() const = 0;
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
  // residual + linear(x, w); x [N, in] or [N, H, D] with H*D = in
  virtual mx::array linear_add(const mx::array& x, const Matrix& w,
                               const mx::array& residual) const = 0;
  // q, k and v of x [N, E]; q and k rotated, each row by its own positions.
  virtual Qkv project_qkv(const mx::array& x, const QkvProjection& projection, Rows rows,
                          const Rope& rope) const = 0;
  // x + mlp(rms_norm(x))
  virtual mx::array norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                                 const GatedMlp& mlp) const = 0;

  // Once, at load, before a Rope is used.
  virtual Status prepare(Rope& rope) const {
    static_cast<void>(rope);
    return {};
  }
  // Null where keys and values are arrays (cache kind `full`); else cache kind `paged` uses them.
  // Errors: unsupported (dtype or head width).
  virtual Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape& shape) const = 0;
};

struct KernelChoice {
  std::string name = "auto";  // "auto" takes tenon where it has kernels for all of this, else mlx
  mx::Device device = mx::Device::cpu;
  mx::Dtype dtype = mx::float32;  // of activations
  int threads = 0;  // of the CPU kernels; 0: physical cores
};
// Errors: invalid (unknown name), unsupported (tenon where it has no kernels, saying what it has).
Result<std::shared_ptr<const Kernels>> make_kernels(const KernelChoice& choice);

// Kernels that load nothing and compute nothing: a graph built with them has had every tensor's
// name and shape checked against its config, and no weight read. For `tenon info`.
std::shared_ptr<const Kernels> make_audit_kernels();

// Bytes of a dense or block format as an array of `dtype`; q* formats are dequantized. A copy.
mx::array dense_array(const WeightView& view, mx::Dtype dtype);
// The array with its stored dtype, byte for byte. Dense formats only. A copy.
mx::array stored_array(const WeightView& view);
// GGUF blocks that are affine in MLX's sense already (Q4_0, Q4_1, Q8_0), repacked bit for bit into
// its layout, groups of 32. Throws "[load] ..." for a format that is not.
struct AffineTriple {
  mx::array weight;  // uint32 [out, in * bits / 32]
  mx::array scales;  // float16 [out, in / 32]
  mx::array biases;  // float16 [out, in / 32]
  int bits;
};
bool is_affine_block(Format f);
int affine_block_bits(Format f);  // 0: not affine
AffineTriple affine_from_blocks(const WeightView& view);
Result<mx::Dtype> parse_dtype(
    std::string_view name);  // "f32"/"float32", "bf16"/"bfloat16", "f16"/"float16"
const char* dtype_name(mx::Dtype dtype);

// Weakly typed scalar: a 0-d array in x's dtype.
mx::array scalar_like(float value, const mx::array& x);

}  // namespace tenon::ops

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

// The experts of one mixture: [X] matrices of one shape, numbered from 0.
class Experts {
 public:
  virtual ~Experts() = default;
  int num = 0;
  int out = 0;
  int in = 0;
  uint64_t bytes = 0;
};
using ExpertsPtr = std::shared_ptr<const Experts>;

// Over the last axis: x / rms(x) * weight or, when centered, (x - mean) / deviation * weight +
// bias.
struct Norm {
  std::optional<mx::array> weight;  // none: all ones
  float eps = 0;
  bool centered = false;  // LayerNorm
  std::optional<mx::array> bias;  // centered only
};

// gelu: by the error function; gelu_tanh: its approximation.
enum class Activation { silu, gelu, gelu_tanh };

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

// What a block's output y passes on its way into the residual stream: residual + scale * norm(y).
struct Join {
  std::optional<Norm> norm;
  std::optional<float> scale;
  bool adds = true;  // false: no residual, scale * norm(y) alone
};

// down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate.
struct Mlp {
  MatrixPtr gate, up, down;  // [F, E], [F, E], [E, F]
  Activation activation = Activation::silu;
};
struct FeedForward {
  std::optional<Norm> norm;  // of x; none: x as it is
  Mlp mlp;
  Join join;
};

// Which experts a token goes to, and with what weights.
struct Router {
  MatrixPtr gate;  // [X, E]
  int top_k = 1;
  // Weights of the chosen: their part of a softmax over all experts (renormalized to a sum of one
  // when `renormalize` asks), or a softmax over the chosen alone.
  enum class Weights { softmax_of_all, softmax_of_chosen } weights = Weights::softmax_of_all;
  bool renormalize = false;
  std::optional<Norm> norm;  // of the router's own input; none: it reads what the experts read
  std::optional<mx::array> expert_scale;  // [X], times the weight of a chosen expert
};
// Gated experts: sum over the chosen of weight * down(act(gate(x)) * up(x)).
struct Moe {
  std::optional<Norm> norm;  // of x, for the experts
  Router router;
  ExpertsPtr gate, up, down;  // X of [F, E], [F, E], [E, F]
  Activation activation = Activation::silu;
  Join join;
};

// The first half of an attention layer: heads of linear(norm(x)), each normed, then rotated.
struct QkvProjection {
  std::optional<Norm> norm;  // of x; none: x as it is
  // k and v null: the layer attends to another layer's keys. v alone null: values are the keys
  // before norm and rotation.
  MatrixPtr q, k, v;  // [H*D, E] (gated: [H*2D, E]), [K*D, E], [K*D, E]
  int num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::optional<Norm> q_norm, k_norm, v_norm;
  bool norms_span_heads = false;  // q_norm and k_norm over all heads at once, else over each
  bool gated = false;  // q emits [H, 2D]: a head's query, then its gate
};
struct Qkv {
  mx::array q;  // [N, H, D]
  std::optional<mx::array> k, v;  // [N, K, D]
  std::optional<mx::array> gate;  // [N, H*D]
};

// A gated delta layer (source: https://arxiv.org/abs/2412.06464, as Qwen3.5 has it).
struct DeltaShape {
  int num_k_heads = 0, num_v_heads = 0;  // value head h reads key head h / (Hv / Hk)
  int k_dim = 0, v_dim = 0;
  int taps = 4;  // of the convolution
  int conv_dim() const { return 2 * num_k_heads * k_dim + num_v_heads * v_dim; }
};
struct DeltaMixer {
  DeltaShape shape;
  Norm norm;  // of x
  MatrixPtr qkv, z, b, a;  // [conv_dim, E], [Hv*Dv, E], [Hv, E], [Hv, E]
  mx::array conv;  // [conv_dim, taps, 1]
  mx::array a_log;  // [Hv]
  mx::array dt_bias;  // [Hv]
  Norm out_norm;  // of each head of y, before its gate
  MatrixPtr out;  // [E, Hv*Dv]
};
struct DeltaInputs {
  mx::array qkv;  // [N, conv_dim], before the convolution
  mx::array z;  // [N, Hv*Dv]
  mx::array b, a;  // [N, Hv]
};
// What a row remembers; its layout is the kernel family's own. Handles: nobody writes into one.
struct DeltaState {
  mx::array conv;  // [taps - 1, conv_dim]
  mx::array delta;  // float32 [Hv, ...]
};

struct Attend {
  float scale = 1.0f;
  int window = 0;  // a token sees so many, itself included; 0: all before it
  float softcap = 0.0f;  // 0: none
  bool whole = false;  // a token sees all of its row, also what comes behind it; without a window
};

struct KvShape {
  int num_kv_heads = 0;
  int k_head_dim = 0;
  int v_head_dim = 0;
  mx::Dtype dtype = mx::float32;  // of stored keys and values
  // Affine quantization along the head width as they are appended; 0 bits: none.
  int bits = 0;
  int group_size = 64;
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
  // Appends k and v of each row (if it has any) behind its offset and attends. pages[i]:
  // those of rows[i], enough for its new length; -1 where no token sees the page any more.
  virtual mx::array attend(const Qkv& qkv, Rows rows, std::span<const std::vector<int>> pages,
                           const Attend& how) = 0;
  virtual mx::array ticket() const = 0;
  // A page's memory, for snapshots: only while no attend() is under way (its ticket is evaluated).
  virtual std::span<std::byte> page(int page) = 0;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual const char* name() const = 0;  // "mlx", "tenon"

  // Loading. `dtype` is that of the activations the matrix will meet.
  virtual MatrixPtr load_matrix(const LinearSource& source, mx::Dtype dtype) const = 0;
  virtual mx::array load_vector(const WeightView& view, mx::Dtype dtype) const = 0;

  // All of one shape, in the order of their numbers.
  virtual ExpertsPtr load_experts(std::span<const LinearSource> experts, mx::Dtype dtype) const = 0;

  // ids int32 [N] -> [N, E]
  virtual mx::array embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const = 0;
  virtual mx::array norm(const mx::array& x, const Norm& norm) const = 0;
  // x @ W^T (+ bias): [N, in] -> [N, out]
  virtual mx::array linear(const mx::array& x, const Matrix& w) const = 0;
  // act(gate) * x, elementwise
  virtual mx::array gate(Activation act, const mx::array& gate, const mx::array& x) const = 0;
  // cap * tanh(x / cap)
  virtual mx::array softcap(const mx::array& x, float cap) const = 0;

  // q, k and v of x [N, E]; q and k rotated, each row by its own positions. `rope` may be null.
  virtual Qkv project_qkv(const mx::array& x, const QkvProjection& projection, Rows rows,
                          const Rope* rope) const = 0;
  // The second half: residual joined with linear(x * sigmoid(gate)). x [N, H, D] or [N, in]; gate
  // may be null.
  virtual mx::array linear_add(const mx::array& x, const Matrix& w, const mx::array& residual,
                               const Join& join = {}, const mx::array* gate = nullptr) const = 0;
  // y joined with the residual
  virtual mx::array join(const mx::array& y, const mx::array& residual, const Join& join) const = 0;
  // x joined with mlp(norm(x))
  virtual mx::array feed_forward(const mx::array& x, const FeedForward& block) const = 0;
  // x joined with the mixture of its experts.
  virtual mx::array feed_forward(const mx::array& x, const Moe& block) const = 0;

  virtual DeltaInputs project_delta(const mx::array& x, const DeltaMixer& mixer) const = 0;
  // Convolution, gates and recurrence of each row's tokens; states[i]: of rows[i], replaced, none
  // for a row that has seen no token. -> [N, Hv*Dv]
  virtual mx::array advance_delta(const DeltaInputs& inputs, const DeltaMixer& mixer, Rows rows,
                                  std::span<std::optional<DeltaState>> states) const = 0;
  // residual + out(norm(y) * silu(z))
  virtual mx::array finish_delta(const mx::array& y, const mx::array& z, const DeltaMixer& mixer,
                                 const mx::array& residual) const = 0;

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

// Arithmetic on one row in host memory, the same bits whatever computed the row.
int32_t argmax(std::span<const float> x);  // the lowest on ties; -1: NaN, or nothing above -inf
// y[i] = exp((x[i] - shift) / divisor)
void exps(std::span<const float> x, float shift, float divisor, float* y);

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

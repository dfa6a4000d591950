#include "ops/cpu_kernels.h"

#include <cstring>
#include <stdexcept>

#include "ops/cpu_linear.h"
#include "ops/rope_table.h"

namespace tenon::ops {

namespace {

// What a row-wise operation costs, roughly: decides whether it is worth a fork.
constexpr int kRowNsPerElement = 1;

class CpuMatrix final : public Matrix {
 public:
  explicit CpuMatrix(std::shared_ptr<const cpu::PackedMatrix> packed_) : packed(packed_) {
    out = packed->out;
    in = packed->in;
    bytes = packed->bytes();
  }
  const std::shared_ptr<const cpu::PackedMatrix> packed;
};

std::shared_ptr<const cpu::PackedMatrix> packed_of(const Matrix& m) {
  return static_cast<const CpuMatrix&>(m).packed;
}

int row_cost(int n) { return n * kRowNsPerElement; }

// Rows of x [num_rows, in], normed, as the operand of `matrices`.
Operand norm_rows(CpuContext& c, const float* x, const float* weight, float eps, int num_rows,
                  int in, std::span<const cpu::PackedMatrix* const> matrices) {
  Operand operand(c, num_rows, in, matrices);
  float* normed = c.scratch.take<float>(static_cast<size_t>(num_rows) * in);
  spread(c, num_rows, row_cost(3 * in), [&](int r) {
    const size_t at = static_cast<size_t>(r) * in;
    c.table->rms_norm(x + at, weight, eps, in, normed + at);
    operand.fill(r, normed + at);
  });
  return operand;
}

Operand plain_rows(CpuContext& c, const float* x, int num_rows, int in,
                   std::span<const cpu::PackedMatrix* const> matrices) {
  Operand operand(c, num_rows, in, matrices);
  spread(c, num_rows, row_cost(in),
         [&](int r) { operand.fill(r, x + static_cast<size_t>(r) * in); });
  return operand;
}

void add_rows(CpuContext& c, const float* residual, float* y, int num_rows, int n) {
  spread(c, num_rows, row_cost(n) / 4, [&](int r) {
    const size_t at = static_cast<size_t>(r) * n;
    c.table->add(residual + at, y + at, n, y + at);
  });
}

// The rows of a step that a rotation reads: pointers into the table, one a token.
std::vector<const float*> rope_rows(Rows rows, RopeTable& table) {
  std::vector<const float*> out;
  for (const RowSlice& row : rows)
    for (int i = 0; i < row.len; ++i) out.push_back(table.row(row.offset + i));
  return out;
}

}  // namespace

Result<std::shared_ptr<const Kernels>> CpuKernels::make(int threads) {
  TENON_TRY(const cpu::Table* table, cpu::table());
  const int num_threads = threads > 0 ? threads : cpu::physical_cores();
  return std::shared_ptr<const Kernels>(
      new CpuKernels(std::make_shared<CpuContext>(table, num_threads)));
}

MatrixPtr CpuKernels::load_matrix(const LinearSource& source, mx::Dtype) const {
  auto packed = cpu::pack(
      source, [&](int n, const std::function<void(int)>& work) { context_->pool.run(n, work); });
  if (!packed.ok()) throw std::runtime_error("[load] " + packed.error().message);
  return std::make_shared<CpuMatrix>(*packed);
}

mx::array CpuKernels::load_vector(const WeightView& view, mx::Dtype dtype) const {
  mx::array v = mx::contiguous(dense_array(view, dtype));
  mx::eval(v);
  return v;
}

mx::array CpuKernels::embed(const mx::array& ids, const Matrix& table, mx::Dtype) const {
  const int num_rows = ids.shape(0), width = table.in;
  auto call = [w = packed_of(table), num_rows, width](const CpuArgs& a) {
    const auto* id = static_cast<const int32_t*>(a.in[0]);
    spread(a.context, num_rows, row_cost(4 * width),
           [&](int r) { w->unpack_row(id[r], a.y(0) + static_cast<size_t>(r) * width); });
  };
  return cpu_call("embed", context_, {ids}, {{num_rows, width}}, std::move(call))[0];
}

mx::array CpuKernels::rms_norm(const mx::array& x, const RmsNorm& norm) const {
  const int n = x.shape(-1), num_rows = static_cast<int>(x.size()) / n;
  auto call = [n, num_rows, eps = norm.eps](const CpuArgs& a) {
    spread(a.context, num_rows, row_cost(n), [&](int r) {
      const size_t at = static_cast<size_t>(r) * n;
      a.context.table->rms_norm(a.x(0) + at, a.x(1), eps, n, a.y(0) + at);
    });
  };
  return cpu_call("rms_norm", context_, {x, norm.weight}, {x.shape()}, std::move(call))[0];
}

mx::array CpuKernels::linear(const mx::array& x, const Matrix& w) const {
  const int num_rows = x.shape(0);
  auto call = [m = packed_of(w), num_rows](const CpuArgs& a) {
    const Operand operand = plain_rows(a.context, a.x(0), num_rows, m->in, {{m.get()}});
    const Product product{m.get(), a.y(0), m->out};
    multiply(a.context, operand, {&product, 1});
  };
  return cpu_call("linear", context_, {x}, {{num_rows, w.out}}, std::move(call))[0];
}

mx::array CpuKernels::linear_add(const mx::array& x, const Matrix& w,
                                 const mx::array& residual) const {
  const int num_rows = x.shape(0);
  auto call = [m = packed_of(w), num_rows](const CpuArgs& a) {
    const Operand operand = plain_rows(a.context, a.x(0), num_rows, m->in, {{m.get()}});
    const Product product{m.get(), a.y(0), m->out};
    multiply(a.context, operand, {&product, 1});
    add_rows(a.context, a.x(1), a.y(0), num_rows, m->out);
  };
  return cpu_call("linear_add", context_, {x, residual}, {{num_rows, w.out}}, std::move(call))[0];
}

Qkv CpuKernels::project_qkv(const mx::array& x, const QkvProjection& p, Rows rows,
                            const Rope& rope) const {
  const int num_rows = x.shape(0), head_dim = p.head_dim;
  const int heads[3] = {p.num_heads, p.num_kv_heads, p.num_kv_heads};
  auto table = std::static_pointer_cast<RopeTable>(rope.prepared);
  auto call = [q = packed_of(*p.q), k = packed_of(*p.k), v = packed_of(*p.v), table,
               turns = rope_rows(rows, *table), num_rows, head_dim, num_q = heads[0],
               num_k = heads[1], eps = p.norm.eps](const CpuArgs& a) {
    const cpu::PackedMatrix* all[] = {q.get(), k.get(), v.get()};
    const Operand operand = norm_rows(a.context, a.x(0), a.x(1), eps, num_rows, q->in, all);
    const Product products[] = {
        {all[0], a.y(0), q->out}, {all[1], a.y(1), k->out}, {all[2], a.y(2), v->out}};
    multiply(a.context, operand, products);
    const int half = table->dims() / 2;
    spread(a.context, num_rows, row_cost((num_q + num_k) * head_dim), [&](int r) {
      const auto turn = [&](float* x_heads, int count) {
        for (int h = 0; h < count; ++h)
          a.context.table->rotate(x_heads + h * head_dim, turns[r], turns[r] + half, table->dims(),
                                  table->traditional());
      };
      turn(a.y(0) + static_cast<size_t>(r) * q->out, num_q);
      turn(a.y(1) + static_cast<size_t>(r) * k->out, num_k);
    });
  };
  std::vector<mx::Shape> shapes;
  for (int count : heads) shapes.push_back({num_rows, count, head_dim});
  const auto out = cpu_call("project_qkv", context_, {x, p.norm.weight}, shapes, std::move(call));
  return {out[0], out[1], out[2]};
}

mx::array CpuKernels::norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                                   const GatedMlp& mlp) const {
  const int num_rows = x.shape(0);
  auto call = [gate = packed_of(*mlp.gate), up = packed_of(*mlp.up), down = packed_of(*mlp.down),
               num_rows, eps = norm.eps](const CpuArgs& a) {
    CpuContext& c = a.context;
    const cpu::PackedMatrix* wide[] = {gate.get(), up.get()};
    const Operand normed = norm_rows(c, a.x(0), a.x(1), eps, num_rows, gate->in, wide);
    const int width = gate->out;
    const size_t size = static_cast<size_t>(num_rows) * width;
    float* gates = c.scratch.take<float>(size);
    float* ups = c.scratch.take<float>(size);
    const Product products[] = {{gate.get(), gates, width}, {up.get(), ups, width}};
    multiply(c, normed, products);
    Operand hidden(c, num_rows, width, {{down.get()}});
    spread(c, num_rows, row_cost(2 * width), [&](int r) {
      float* g = gates + static_cast<size_t>(r) * width;
      c.table->gated(cpu::Activation::silu, g, ups + static_cast<size_t>(r) * width, width, g);
      hidden.fill(r, g);
    });
    const Product last{down.get(), a.y(0), down->out};
    multiply(c, hidden, {&last, 1});
    add_rows(c, a.x(0), a.y(0), num_rows, down->out);
  };
  return cpu_call("norm_mlp_add", context_, {x, norm.weight}, {x.shape()}, std::move(call))[0];
}

Status CpuKernels::prepare(Rope& rope) const {
  rope.prepared = std::make_shared<RopeTable>(rope);
  return {};
}

Result<std::shared_ptr<KvPages>> CpuKernels::make_kv_pages(const KvShape& shape) const {
  return make_cpu_pages(shape, context_);
}

}  // namespace tenon::ops

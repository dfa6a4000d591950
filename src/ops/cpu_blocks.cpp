// The blocks of a dense layer on the CPU: attention's projections before and after, feed-forward
// (declared in cpu_kernels.h). Each is one primitive.
#include <cstring>

#include "ops/cpu_kernels.h"
#include "ops/cpu_rows.h"
#include "ops/rope_table.h"

namespace tenon::ops {

namespace {

// Heads that one projection makes, and what happens to each of them.
struct Heads {
  int count = 0, dim = 0;
  CpuNorm norm;
  bool norm_spans = false;  // one norm over all heads
  int width() const { return count * dim; }
};

// How a step's tokens are turned: pointers into the table, one a token.
struct Turns {
  std::shared_ptr<RopeTable> table;
  std::vector<const float*> rows;
};

Turns turns_of(Rows rows, const Rope* rope) {
  if (rope == nullptr) return {};
  Turns turns{std::static_pointer_cast<RopeTable>(rope->prepared), {}};
  for (const RowSlice& row : rows)
    for (int i = 0; i < row.len; ++i) turns.rows.push_back(turns.table->row(row.offset + i));
  return turns;
}

void norm_heads(const CpuArgs& a, const Heads& heads, float* x) {
  if (!heads.norm.present) return;
  if (heads.norm_spans) return heads.norm.apply(a, x, heads.width(), x);
  for (int h = 0; h < heads.count; ++h)
    heads.norm.apply(a, x + h * heads.dim, heads.dim, x + h * heads.dim);
}

void turn_heads(const CpuArgs& a, const Heads& heads, const Turns& turns, int row, float* x) {
  if (!turns.table) return;
  const int dims = turns.table->dims(), half = dims / 2;
  const float* at = turns.rows[row];
  for (int h = 0; h < heads.count; ++h)
    a.context.table->rotate(x + h * heads.dim, at, at + half, dims, turns.table->traditional());
}

// Everything that project_qkv's primitive needs when it runs.
struct QkvTask {
  PackedPtr q, k, v;
  CpuNorm norm;
  Heads query, key, value;
  Turns turns;
  bool gated = false;
  int num_rows = 0;

  // Outputs in order: q, then k and v where there are keys, then the gate.
  int gate_output() const { return k ? 3 : 1; }

  void run(const CpuArgs& a) const {
    std::vector<const cpu::PackedMatrix*> all{q.get()};
    if (k) all.push_back(k.get());
    if (v) all.push_back(v.get());
    const Operand operand = norm_rows(a, a.x(0), norm, num_rows, q->in, all);
    float* wide =
        gated ? a.context.scratch.take<float>(static_cast<size_t>(num_rows) * q->out) : a.y(0);
    std::vector<Product> products{{q.get(), wide, q->out}};
    if (k) products.push_back({k.get(), a.y(1), k->out});
    if (v) products.push_back({v.get(), a.y(2), v->out});
    multiply(a.context, operand, products);
    const int cost = row_cost_ns(query.width() + key.width() + value.width());
    spread(a.context, num_rows, cost, [&](int r) { finish_row(a, wide, r); });
  }

  void finish_row(const CpuArgs& a, const float* wide, int r) const {
    float* queries = a.y(0) + static_cast<size_t>(r) * query.width();
    if (gated) split_gates(a, wide + static_cast<size_t>(r) * q->out, r, queries);
    norm_heads(a, query, queries);
    turn_heads(a, query, turns, r, queries);
    if (!k) return;
    float* keys = a.y(1) + static_cast<size_t>(r) * key.width();
    float* values = a.y(2) + static_cast<size_t>(r) * value.width();
    if (!v) std::copy_n(keys, value.width(), values);
    norm_heads(a, key, keys);
    turn_heads(a, key, turns, r, keys);
    norm_heads(a, value, values);
  }

  void split_gates(const CpuArgs& a, const float* wide, int r, float* queries) const {
    float* gates = a.y(gate_output()) + static_cast<size_t>(r) * query.width();
    for (int h = 0; h < query.count; ++h) {
      const float* head = wide + static_cast<size_t>(2) * h * query.dim;
      std::copy_n(head, query.dim, queries + h * query.dim);
      std::copy_n(head + query.dim, query.dim, gates + h * query.dim);
    }
  }
};

}  // namespace

Qkv CpuKernels::project_qkv(const mx::array& x, const QkvProjection& p, Rows rows,
                            const Rope* rope) const {
  if (rope && rope->dims > p.head_dim)
    throw std::invalid_argument(
        fmt::format("[project_qkv] RoPE over {} dims of heads of {}", rope->dims, p.head_dim));
  CpuInputs inputs{{x}};
  QkvTask task{packed_of(p.q), packed_of(p.k), packed_of(p.v)};
  task.num_rows = x.shape(0);
  task.norm = inputs.add(p.norm);
  task.query = {p.num_heads, p.head_dim, inputs.add(p.q_norm), p.norms_span_heads};
  task.key = {p.num_kv_heads, p.head_dim, inputs.add(p.k_norm), p.norms_span_heads};
  task.value = {p.num_kv_heads, p.head_dim, inputs.add(p.v_norm)};
  task.turns = turns_of(rows, rope);
  task.gated = p.gated;
  const mx::Shape kv{x.shape(0), p.num_kv_heads, p.head_dim};
  std::vector<mx::Shape> shapes{{x.shape(0), p.num_heads, p.head_dim}};
  if (p.k) shapes.insert(shapes.end(), {kv, kv});
  if (p.gated) shapes.push_back({x.shape(0), p.num_heads * p.head_dim});
  const auto out = cpu_call("project_qkv", context_, std::move(inputs.arrays), shapes,
                            [task](const CpuArgs& a) { task.run(a); });
  Qkv qkv{out[0], {}, {}, {}};
  if (p.k) qkv.k = out[1], qkv.v = out[2];
  if (p.gated) qkv.gate = out.back();
  return qkv;
}

mx::array CpuKernels::linear_add(const mx::array& x, const Matrix& w, const mx::array& residual,
                                 const Join& join, const mx::array* gate) const {
  const int num_rows = x.shape(0);
  CpuInputs inputs{{x, residual}};
  const int gate_input = gate ? inputs.add(*gate) : -1;
  auto call = [m = packed_of(w), num_rows, use = inputs.add(join), gate_input](const CpuArgs& a) {
    CpuContext& c = a.context;
    const float* rows = a.x(0);
    if (gate_input >= 0) {
      float* gated = c.scratch.take<float>(static_cast<size_t>(num_rows) * m->in);
      spread(c, num_rows, row_cost_ns(2 * m->in), [&](int r) {
        const size_t at = static_cast<size_t>(r) * m->in;
        c.table->sigmoid_gate(a.x(gate_input) + at, rows + at, m->in, gated + at);
      });
      rows = gated;
    }
    const Operand operand = norm_rows(a, rows, {}, num_rows, m->in, {{m.get()}});
    multiply(c, operand, {{{m.get(), a.y(0), m->out}}});
    join_rows(a, use, a.x(1), a.y(0), num_rows, m->out);
  };
  return cpu_call("linear_add", context_, std::move(inputs.arrays), {{num_rows, w.out}},
                  std::move(call))[0];
}

mx::array CpuKernels::feed_forward(const mx::array& x, const FeedForward& block) const {
  const int num_rows = x.shape(0);
  CpuInputs inputs{{x}};
  const Mlp& mlp = block.mlp;
  auto call = [gate = packed_of(mlp.gate), up = packed_of(mlp.up), down = packed_of(mlp.down),
               act = cpu_activation(mlp.activation), norm = inputs.add(block.norm),
               join = inputs.add(block.join), num_rows](const CpuArgs& a) {
    CpuContext& c = a.context;
    std::vector<const cpu::PackedMatrix*> wide{up.get()};
    if (gate) wide.push_back(gate.get());
    const Operand normed = norm_rows(a, a.x(0), norm, num_rows, up->in, wide);
    const int width = up->out;
    const size_t size = static_cast<size_t>(num_rows) * width;
    float* ups = c.scratch.take<float>(size);
    float* gates = gate ? c.scratch.take<float>(size) : nullptr;
    std::vector<Product> products{{up.get(), ups, width}};
    if (gate) products.push_back({gate.get(), gates, width});
    multiply(c, normed, products);
    Operand hidden(c, num_rows, width, {{down.get()}});
    spread(c, num_rows, row_cost_ns(2 * width), [&](int r) {
      float* u = ups + static_cast<size_t>(r) * width;
      if (gate)
        c.table->gated(act, gates + static_cast<size_t>(r) * width, u, width, u);
      else
        c.table->activate(act, u, width, u);
      hidden.fill(r, u);
    });
    multiply(c, hidden, {{{down.get(), a.y(0), down->out}}});
    join_rows(a, join, a.x(0), a.y(0), num_rows, down->out);
  };
  return cpu_call("feed_forward", context_, std::move(inputs.arrays), {x.shape()},
                  std::move(call))[0];
}

}  // namespace tenon::ops

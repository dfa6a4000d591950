// Gated delta layers on the CPU (declared in cpu_kernels.h): projections, the recurrence over all
// rows of a step, and the way back into the residual stream; each one primitive. The state of a row
// is [Hv, Dk, Dv], so that a lane is a value dimension.
#include <cmath>
#include <cstring>

#include "ops/cpu_kernels.h"
#include "ops/cpu_rows.h"

namespace tenon::ops {

namespace {

constexpr double kHeadEps = 1e-6;  // of sum(x^2) of a head's query or key

// What one advance needs when it runs. Inputs: qkv, b, a, conv weights [taps, conv_dim], a_log,
// dt_bias, then conv and delta state of each row that has one.
struct AdvanceTask {
  DeltaShape shape;
  std::vector<RowSlice> rows;
  std::vector<int> state_inputs;  // of a row's conv state, the delta state follows; -1: none

  int num_tokens() const { return rows.empty() ? 0 : rows.back().start + rows.back().len; }
  size_t state_size() const {
    return static_cast<size_t>(shape.num_v_heads) * shape.k_dim * shape.v_dim;
  }

  void run(const CpuArgs& a) const {
    const int n = num_tokens(), heads = shape.num_v_heads, width = shape.conv_dim();
    Scratch& scratch = a.context.scratch;
    float* mixed = scratch.take<float>(static_cast<size_t>(n) * width);
    float* decay = scratch.take<float>(static_cast<size_t>(n) * heads);
    float* beta = scratch.take<float>(static_cast<size_t>(n) * heads);
    const float* zeros = zero_row(scratch, width);
    std::vector<std::pair<int, int>> tokens;  // row, token of it
    for (int r = 0; r < static_cast<int>(rows.size()); ++r)
      for (int t = 0; t < rows[r].len; ++t) tokens.emplace_back(r, t);
    spread(a.context, static_cast<int>(tokens.size()), row_cost_ns(8 * width), [&](int i) {
      const auto [r, t] = tokens[i];
      const size_t at = rows[r].start + t;
      convolve(a, r, t, zeros, mixed + at * width);
      a.context.table->delta_gates(a.x(2) + at * heads, a.x(1) + at * heads, a.x(4), a.x(5), heads,
                                   decay + at * heads, beta + at * heads);
    });
    const int num_items = static_cast<int>(rows.size()) * heads;
    a.context.pool.run(num_items,
                       [&](int i) { recur(a, i / heads, i % heads, mixed, decay, beta); });
    for (int r = 0; r < static_cast<int>(rows.size()); ++r) keep_tail(a, r);
  }

 private:
  static const float* zero_row(Scratch& scratch, int width) {
    float* zeros = scratch.take<float>(width);
    std::memset(zeros, 0, width * sizeof(float));
    return zeros;
  }

  // Token `t` of row r before the convolution; t < 0: what its state remembers.
  const float* input_row(const CpuArgs& a, int r, int t, const float* zeros) const {
    const int width = shape.conv_dim();
    if (t >= 0) return a.x(0) + static_cast<size_t>(rows[r].start + t) * width;
    if (state_inputs[r] < 0) return zeros;
    return a.x(state_inputs[r]) + static_cast<size_t>(shape.taps - 1 + t) * width;
  }

  // Convolution, SiLU, and the norms of queries and keys.
  void convolve(const CpuArgs& a, int r, int t, const float* zeros, float* y) const {
    const cpu::Table& table = *a.context.table;
    const float* taps[kTapsMax];
    for (int i = 0; i < shape.taps; ++i) taps[i] = input_row(a, r, t - (shape.taps - 1) + i, zeros);
    table.conv(taps, a.x(3), shape.taps, shape.conv_dim(), y);
    const double inverse = std::pow(static_cast<double>(shape.k_dim), -0.5);
    const float eps = static_cast<float>(kHeadEps * inverse * inverse);
    for (int h = 0; h < 2 * shape.num_k_heads; ++h) {
      float* head = y + static_cast<size_t>(h) * shape.k_dim;
      const double factor = h < shape.num_k_heads ? inverse * inverse : inverse;
      table.rms_norm(head, nullptr, eps, shape.k_dim, head);
      table.scale(static_cast<float>(factor), head, shape.k_dim, head);
    }
  }

  // One value head of one row, token after token.
  void recur(const CpuArgs& a, int r, int head, const float* mixed, const float* decay,
             const float* beta) const {
    const int width = shape.conv_dim(), heads = shape.num_v_heads;
    const int key_head = head / (heads / shape.num_k_heads);
    const size_t head_size = static_cast<size_t>(shape.k_dim) * shape.v_dim;
    float* state = a.y(2 + 2 * r) + head * head_size;
    if (state_inputs[r] >= 0)
      std::memcpy(state, a.x(state_inputs[r] + 1) + head * head_size, head_size * sizeof(float));
    else
      std::memset(state, 0, head_size * sizeof(float));
    for (int t = 0; t < rows[r].len; ++t) {
      const size_t at = rows[r].start + t;
      const float* token = mixed + at * width;
      const float* query = token + key_head * shape.k_dim;
      const float* key = query + shape.num_k_heads * shape.k_dim;
      const float* value = token + 2 * shape.num_k_heads * shape.k_dim + head * shape.v_dim;
      float* y = a.y(0) + (at * heads + head) * shape.v_dim;
      a.context.table->delta({shape.k_dim, shape.v_dim, state, query, key, value,
                              decay[at * heads + head], beta[at * heads + head], y});
    }
  }

  // The inputs of the last taps - 1 tokens.
  void keep_tail(const CpuArgs& a, int r) const {
    const int width = shape.conv_dim(), kept = shape.taps - 1;
    float* tail = a.y(1 + 2 * r);
    for (int i = 0; i < kept; ++i) {
      const int t = rows[r].len - kept + i;
      float* to = tail + static_cast<size_t>(i) * width;
      if (t < 0 && state_inputs[r] < 0)
        std::memset(to, 0, width * sizeof(float));
      else
        std::memcpy(to, input_row(a, r, t, nullptr), width * sizeof(float));
    }
  }

  static constexpr int kTapsMax = 8;
};

}  // namespace

DeltaInputs CpuKernels::project_delta(const mx::array& x, const DeltaMixer& mixer) const {
  const int num_rows = x.shape(0);
  CpuInputs inputs{{x}};
  const std::array<PackedPtr, 4> all = {packed_of(mixer.qkv), packed_of(mixer.z),
                                        packed_of(mixer.b), packed_of(mixer.a)};
  std::vector<mx::Shape> shapes;
  for (const PackedPtr& m : all) shapes.push_back({num_rows, m->out});
  auto call = [all, norm = inputs.add(std::optional(mixer.norm)), num_rows](const CpuArgs& a) {
    const cpu::PackedMatrix* raw[] = {all[0].get(), all[1].get(), all[2].get(), all[3].get()};
    const Operand operand = norm_rows(a, a.x(0), norm, num_rows, all[0]->in, raw);
    std::vector<Product> products;
    for (int i = 0; i < 4; ++i) products.push_back({raw[i], a.y(i), raw[i]->out});
    multiply(a.context, operand, products);
  };
  const auto out =
      cpu_call("project_delta", context_, std::move(inputs.arrays), shapes, std::move(call));
  return {out[0], out[1], out[2], out[3]};
}

mx::array CpuKernels::advance_delta(const DeltaInputs& in, const DeltaMixer& mixer, Rows rows,
                                    std::span<std::optional<DeltaState>> states) const {
  const DeltaShape& s = mixer.shape;
  AdvanceTask task{s, {rows.begin(), rows.end()}, {}};
  const auto taps_first = mx::contiguous(mx::transpose(mx::squeeze(mixer.conv, 2), {1, 0}));
  std::vector<mx::array> inputs{in.qkv, in.b, in.a, taps_first, mixer.a_log, mixer.dt_bias};
  std::vector<mx::Shape> shapes{{in.qkv.shape(0), s.num_v_heads * s.v_dim}};
  for (const auto& state : states) {
    task.state_inputs.push_back(state ? static_cast<int>(inputs.size()) : -1);
    if (state) inputs.insert(inputs.end(), {state->conv, state->delta});
    shapes.push_back({s.taps - 1, s.conv_dim()});
    shapes.push_back({s.num_v_heads, s.k_dim, s.v_dim});
  }
  const auto out = cpu_call("advance_delta", context_, std::move(inputs), shapes,
                            [task = std::move(task)](const CpuArgs& a) { task.run(a); });
  for (size_t i = 0; i < states.size(); ++i) states[i] = DeltaState{out[1 + 2 * i], out[2 + 2 * i]};
  return out[0];
}

mx::array CpuKernels::finish_delta(const mx::array& y, const mx::array& z, const DeltaMixer& mixer,
                                   const mx::array& residual) const {
  const int num_rows = y.shape(0), heads = mixer.shape.num_v_heads, dim = mixer.shape.v_dim;
  CpuInputs inputs{{y, z, residual}};
  auto call = [m = packed_of(mixer.out), norm = inputs.add(std::optional(mixer.out_norm)), num_rows,
               heads, dim](const CpuArgs& a) {
    CpuContext& c = a.context;
    float* gated = c.scratch.take<float>(static_cast<size_t>(num_rows) * m->in);
    spread(c, num_rows, row_cost_ns(3 * m->in), [&](int r) {
      const size_t at = static_cast<size_t>(r) * m->in;
      for (int h = 0; h < heads; ++h)
        norm.apply(a, a.x(0) + at + h * dim, dim, gated + at + h * dim);
      c.table->gated(cpu::Activation::silu, a.x(1) + at, gated + at, m->in, gated + at);
    });
    const Operand operand = norm_rows(a, gated, {}, num_rows, m->in, {{m.get()}});
    multiply(c, operand, {{{m.get(), a.y(0), m->out}}});
    join_rows(a, {}, a.x(2), a.y(0), num_rows, m->out);
  };
  return cpu_call("finish_delta", context_, std::move(inputs.arrays), {{num_rows, mixer.out->out}},
                  std::move(call))[0];
}

}  // namespace tenon::ops

#include "ops/cpu_kernels.h"

#include <stdexcept>

#include "ops/cpu_rows.h"
#include "ops/rope_table.h"

namespace tenon::ops {

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
    spread(a.context, num_rows, row_cost_ns(4 * width),
           [&](int r) { w->unpack_row(id[r], a.y(0) + static_cast<size_t>(r) * width); });
  };
  return cpu_call("embed", context_, {ids}, {{num_rows, width}}, std::move(call))[0];
}

mx::array CpuKernels::norm(const mx::array& x, const Norm& norm) const {
  const int n = x.shape(-1), num_rows = static_cast<int>(x.size()) / n;
  CpuInputs inputs{{x}};
  auto call = [n, num_rows, use = inputs.add(std::optional(norm))](const CpuArgs& a) {
    spread(a.context, num_rows, row_cost_ns(n), [&](int r) {
      const size_t at = static_cast<size_t>(r) * n;
      use.apply(a, a.x(0) + at, n, a.y(0) + at);
    });
  };
  return cpu_call("norm", context_, std::move(inputs.arrays), {x.shape()}, std::move(call))[0];
}

mx::array CpuKernels::linear(const mx::array& x, const Matrix& w) const {
  const int num_rows = x.shape(0);
  auto call = [m = packed_of(w), num_rows](const CpuArgs& a) {
    const Operand operand = norm_rows(a, a.x(0), {}, num_rows, m->in, {{m.get()}});
    multiply(a.context, operand, {{{m.get(), a.y(0), m->out}}});
  };
  return cpu_call("linear", context_, {x}, {{num_rows, w.out}}, std::move(call))[0];
}

mx::array CpuKernels::gate(Activation act, const mx::array& gate, const mx::array& x) const {
  const int n = x.shape(-1), num_rows = static_cast<int>(x.size()) / n;
  auto call = [n, num_rows, kind = cpu_activation(act)](const CpuArgs& a) {
    spread(a.context, num_rows, row_cost_ns(2 * n), [&](int r) {
      const size_t at = static_cast<size_t>(r) * n;
      a.context.table->gated(kind, a.x(0) + at, a.x(1) + at, n, a.y(0) + at);
    });
  };
  return cpu_call("gate", context_, {mx::contiguous(gate), mx::contiguous(x)}, {x.shape()},
                  std::move(call))[0];
}

mx::array CpuKernels::softcap(const mx::array& x, float cap) const {
  const int n = x.shape(-1), num_rows = static_cast<int>(x.size()) / n;
  auto call = [n, num_rows, cap](const CpuArgs& a) {
    spread(a.context, num_rows, row_cost_ns(2 * n), [&](int r) {
      const size_t at = static_cast<size_t>(r) * n;
      a.context.table->softcap(cap, a.x(0) + at, n, a.y(0) + at);
    });
  };
  return cpu_call("softcap", context_, {x}, {x.shape()}, std::move(call))[0];
}

mx::array CpuKernels::join(const mx::array& y, const mx::array& residual, const Join& join) const {
  const int n = y.shape(-1), num_rows = static_cast<int>(y.size()) / n;
  CpuInputs inputs{{y, residual}};
  auto call = [n, num_rows, use = inputs.add(join)](const CpuArgs& a) {
    std::copy_n(a.x(0), static_cast<size_t>(num_rows) * n, a.y(0));
    join_rows(a, use, a.x(1), a.y(0), num_rows, n);
  };
  return cpu_call("join", context_, std::move(inputs.arrays), {y.shape()}, std::move(call))[0];
}

Status CpuKernels::prepare(Rope& rope) const {
  rope.prepared = std::make_shared<RopeTable>(rope);
  return {};
}

Result<std::shared_ptr<KvPages>> CpuKernels::make_kv_pages(const KvShape& shape) const {
  return make_cpu_pages(shape, context_);
}

}  // namespace tenon::ops

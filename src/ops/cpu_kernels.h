// Kernel family `tenon` on the CPU: float32 activations, our kernels (kernels/cpu) behind about
// four primitives a layer. The row law holds by construction. Source of the arithmetic:
// kernels/cpu. Files: cpu_task (a call as a primitive), cpu_linear (products over the pool),
// cpu_rows (norms and joins inside calls); cpu_kernels (single operations), cpu_blocks (attention
// projections, feed-forward), cpu_moe, cpu_delta, cpu_pages (attention).
#pragma once
#include "ops/cpu_task.h"

namespace tenon::ops {

class CpuKernels final : public Kernels {
 public:
  // Errors: invalid (TENON_CPU_TARGET).
  static Result<std::shared_ptr<const Kernels>> make(int threads);

  const char* name() const override { return "tenon"; }
  MatrixPtr load_matrix(const LinearSource& source, mx::Dtype dtype) const override;
  mx::array load_vector(const WeightView& view, mx::Dtype dtype) const override;
  ExpertsPtr load_experts(std::span<const LinearSource> experts, mx::Dtype dtype) const override;

  mx::array embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const override;
  mx::array norm(const mx::array& x, const Norm& norm) const override;
  mx::array linear(const mx::array& x, const Matrix& w) const override;
  mx::array gate(Activation act, const mx::array& gate, const mx::array& x) const override;
  mx::array softcap(const mx::array& x, float cap) const override;
  Qkv project_qkv(const mx::array& x, const QkvProjection& projection, Rows rows,
                  const Rope* rope) const override;
  mx::array linear_add(const mx::array& x, const Matrix& w, const mx::array& residual,
                       const Join& join, const mx::array* gate) const override;
  mx::array join(const mx::array& y, const mx::array& residual, const Join& join) const override;
  mx::array feed_forward(const mx::array& x, const FeedForward& block) const override;
  mx::array feed_forward(const mx::array& x, const Moe& block) const override;

  DeltaInputs project_delta(const mx::array& x, const DeltaMixer& mixer) const override;
  mx::array advance_delta(const DeltaInputs& inputs, const DeltaMixer& mixer, Rows rows,
                          std::span<std::optional<DeltaState>> states) const override;
  mx::array finish_delta(const mx::array& y, const mx::array& z, const DeltaMixer& mixer,
                         const mx::array& residual) const override;

  Status prepare(Rope& rope) const override;
  Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape& shape) const override;

 private:
  explicit CpuKernels(CpuContextPtr context) : context_(std::move(context)) {}
  CpuContextPtr context_;
};

// Declared here for make_kv_pages; cpu_pages.cpp.
Result<std::shared_ptr<KvPages>> make_cpu_pages(const KvShape& shape, CpuContextPtr context);

}  // namespace tenon::ops

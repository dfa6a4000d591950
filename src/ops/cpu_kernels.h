// Kernel family `tenon` on the CPU: float32 activations, our kernels (kernels/cpu) behind four
// primitives a layer. The row law holds by construction. Source of the arithmetic: kernels/cpu.
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
  mx::array embed(const mx::array& ids, const Matrix& table, mx::Dtype dtype) const override;
  mx::array rms_norm(const mx::array& x, const RmsNorm& norm) const override;
  mx::array linear(const mx::array& x, const Matrix& w) const override;
  mx::array linear_add(const mx::array& x, const Matrix& w,
                       const mx::array& residual) const override;
  Qkv project_qkv(const mx::array& x, const QkvProjection& projection, Rows rows,
                  const Rope& rope) const override;
  mx::array norm_mlp_add(const mx::array& x, const RmsNorm& norm,
                         const GatedMlp& mlp) const override;
  Status prepare(Rope& rope) const override;
  Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape& shape) const override;

 private:
  explicit CpuKernels(CpuContextPtr context) : context_(std::move(context)) {}
  CpuContextPtr context_;
};

// Declared here for make_kv_pages; cpu_pages.cpp.
Result<std::shared_ptr<KvPages>> make_cpu_pages(const KvShape& shape, CpuContextPtr context);

}  // namespace tenon::ops

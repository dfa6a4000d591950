// A kernel family for looking, not running.
#include <stdexcept>

#include "ops/ops.h"

namespace tenon::ops {

namespace {

[[noreturn]] void refuse() { throw std::logic_error("[audit] these kernels do not compute"); }

class AuditKernels final : public Kernels {
 public:
  const char* name() const override { return "audit"; }
  MatrixPtr load_matrix(const LinearSource& source, mx::Dtype) const override {
    auto matrix = std::make_shared<Matrix>();
    matrix->bytes = source.weight.bytes.size();
    for (const auto* parts : {&source.scales, &source.biases, &source.bias})
      for (const WeightView& part : *parts) matrix->bytes += part.bytes.size();
    return matrix;
  }
  mx::array load_vector(const WeightView&, mx::Dtype dtype) const override {
    return mx::zeros({1}, dtype);
  }
  mx::array embed(const mx::array&, const Matrix&, mx::Dtype) const override { refuse(); }
  mx::array rms_norm(const mx::array&, const RmsNorm&) const override { refuse(); }
  mx::array linear(const mx::array&, const Matrix&) const override { refuse(); }
  mx::array linear_add(const mx::array&, const Matrix&, const mx::array&) const override {
    refuse();
  }
  Qkv project_qkv(const mx::array&, const QkvProjection&, Rows, const Rope&) const override {
    refuse();
  }
  mx::array norm_mlp_add(const mx::array&, const RmsNorm&, const GatedMlp&) const override {
    refuse();
  }
  Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape&) const override {
    return std::shared_ptr<KvPages>();
  }
};

}  // namespace

std::shared_ptr<const Kernels> make_audit_kernels() { return std::make_shared<AuditKernels>(); }

}  // namespace tenon::ops

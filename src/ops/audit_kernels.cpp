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
  mx::array load_vector(const WeightView& view, mx::Dtype dtype) const override {
    const mx::Shape shape(view.shape.begin(), view.shape.end());
    return mx::broadcast_to(mx::array(1, dtype), shape);  // no memory behind it
  }
  ExpertsPtr load_experts(std::span<const LinearSource> experts, mx::Dtype dtype) const override {
    auto all = std::make_shared<Experts>();
    for (const LinearSource& expert : experts) all->bytes += load_matrix(expert, dtype)->bytes;
    return all;
  }
  mx::array embed(const mx::array&, const Matrix&, mx::Dtype) const override { refuse(); }
  mx::array norm(const mx::array&, const Norm&) const override { refuse(); }
  mx::array linear(const mx::array&, const Matrix&) const override { refuse(); }
  mx::array gate(Activation, const mx::array&, const mx::array&) const override { refuse(); }
  mx::array softcap(const mx::array&, float) const override { refuse(); }
  Qkv project_qkv(const mx::array&, const QkvProjection&, Rows, const Rope*) const override {
    refuse();
  }
  mx::array linear_add(const mx::array&, const Matrix&, const mx::array&, const Join&,
                       const mx::array*) const override {
    refuse();
  }
  mx::array join(const mx::array&, const mx::array&, const Join&) const override { refuse(); }
  mx::array feed_forward(const mx::array&, const FeedForward&) const override { refuse(); }
  mx::array feed_forward(const mx::array&, const Moe&) const override { refuse(); }
  DeltaInputs project_delta(const mx::array&, const DeltaMixer&) const override { refuse(); }
  mx::array advance_delta(const DeltaInputs&, const DeltaMixer&, Rows,
                          std::span<std::optional<DeltaState>>) const override {
    refuse();
  }
  mx::array finish_delta(const mx::array&, const mx::array&, const DeltaMixer&,
                         const mx::array&) const override {
    refuse();
  }
  Result<std::shared_ptr<KvPages>> make_kv_pages(const KvShape&) const override {
    return std::shared_ptr<KvPages>();
  }
};

}  // namespace

std::shared_ptr<const Kernels> make_audit_kernels() { return std::make_shared<AuditKernels>(); }

}  // namespace tenon::ops

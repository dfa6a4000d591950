// Choosing a kernel family.
#include "ops/cpu_kernels.h"
#include "ops/mlx_kernels.h"

namespace tenon::ops {

Result<std::shared_ptr<const Kernels>> make_kernels(const KernelChoice& choice) {
  if (choice.name != "auto" && choice.name != "mlx" && choice.name != "tenon")
    return invalid("--kernels {}: use auto, mlx or tenon", choice.name);
  const bool ours = choice.device == mx::Device::cpu && choice.dtype == mx::float32;
  if (choice.name == "tenon" && !ours)
    return unsupported(
        "--kernels tenon: there are kernels for the CPU with float32 activations; use --dtype "
        "float32, or mlx or auto");
  if (choice.name == "mlx" || !ours) return std::shared_ptr<const Kernels>(new MlxKernels);
  return CpuKernels::make(choice.threads);
}

}  // namespace tenon::ops

// Takes a model's tensors from a checkpoint and hands them to its kernels, counting bytes.
// Lives while a family is built. Errors: those of Weights, naming the tensor. Shapes: matrices are
// [out, in]; paths are module paths without ".weight".
#pragma once
#include "checkpoint/checkpoint.h"
#include "graph/graph.h"

namespace tenon::graph {

struct NormKind {
  float eps = 0;
  bool plus_one = false;  // the stored weight is the distance from one
  bool centered = false;  // LayerNorm, with a bias
};

class Loader {
 public:
  Loader(checkpoint::Weights& weights, const BuildOptions& options)
      : weights_(weights), options_(options) {}

  checkpoint::Weights& weights() { return weights_; }
  const ops::Kernels& kernels() const { return *options_.kernels; }
  mx::Dtype dtype() const { return options_.dtype; }
  uint64_t bytes() const { return bytes_; }

  Result<ops::MatrixPtr> matrix(const std::string& path, int out, int in, bool bias = false);
  // One stored matrix that holds several, one after another along its outputs.
  Result<std::vector<ops::MatrixPtr>> fused(const std::string& path, const std::vector<int>& outs,
                                            int in, bool bias = false);
  // A tensor of floats with a name of its own, [out, in]; transposed: stored as [in, out].
  Result<ops::MatrixPtr> table(const std::string& name, int out, int in);
  Result<ops::MatrixPtr> transposed(const std::string& name, int out, int in);
  Result<ops::Norm> norm(const std::string& path, int dim, const NormKind& kind);
  Result<mx::array> vector(const std::string& name, std::vector<int64_t> shape);
  Result<mx::array> vector(const std::string& name, std::vector<int64_t> shape, mx::Dtype dtype);
  // X matrices: one tensor [X, out, in] under `path`, or one for each expert, whose path `each`
  // spells with {} for its number.
  Result<ops::ExpertsPtr> experts(const std::string& path, const std::string& each, int num,
                                  int out, int in);
  // One tensor [X, sum of outs, in] that holds several stacks, one after another along outputs.
  Result<std::vector<ops::ExpertsPtr>> fused_experts(const std::string& path, int num,
                                                     const std::vector<int>& outs, int in);

 private:
  ops::ExpertsPtr load(const std::vector<LinearSource>& experts);
  ops::MatrixPtr load(const LinearSource& source);
  Result<WeightView> take_floats(const std::string& name, std::vector<int64_t> shape);
  checkpoint::Weights& weights_;
  const BuildOptions& options_;
  uint64_t bytes_ = 0;
};

}  // namespace tenon::graph

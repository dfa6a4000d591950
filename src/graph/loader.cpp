#include "graph/loader.h"

#include <numeric>

#include "base/handover.h"

namespace tenon::graph {

ops::MatrixPtr Loader::load(const LinearSource& source) {
  ops::MatrixPtr loaded = options_.kernels->load_matrix(source, options_.dtype);
  bytes_ += loaded->bytes;
  return loaded;
}

ops::ExpertsPtr Loader::load(const std::vector<LinearSource>& experts) {
  ops::ExpertsPtr loaded = options_.kernels->load_experts(experts, options_.dtype);
  bytes_ += loaded->bytes;
  return loaded;
}

Result<ops::MatrixPtr> Loader::matrix(const std::string& path, int out, int in, bool bias) {
  TENON_TRY(const LinearSource source, weights_.take_linear(path, out, in, bias));
  return load(source);
}

Result<std::vector<ops::MatrixPtr>> Loader::fused(const std::string& path,
                                                  const std::vector<int>& outs, int in, bool bias) {
  const int out = std::accumulate(outs.begin(), outs.end(), 0);
  TENON_TRY(const LinearSource source, weights_.take_linear(path, out, in, bias));
  std::vector<ops::MatrixPtr> parts;
  int64_t row = 0;
  for (const int n : outs) {
    parts.push_back(load(rows_of(source, row, row + n)));
    row += n;
  }
  return parts;
}

Result<WeightView> Loader::take_floats(const std::string& name, std::vector<int64_t> shape) {
  TENON_TRY(const WeightView view, weights_.take(name, std::move(shape)));
  if (view.format != Format::f32 && view.format != Format::f16 && view.format != Format::bf16)
    return corrupt("{}: tensor {} is {}, expected floats", weights_.file_of(name), view.name,
                   format_name(view.format));
  return view;
}

Result<ops::MatrixPtr> Loader::table(const std::string& name, int out, int in) {
  TENON_TRY(const WeightView view, take_floats(name, {out, in}));
  return load(LinearSource{view, {}, {}, {}});
}

Result<ops::MatrixPtr> Loader::transposed(const std::string& name, int out, int in) {
  TENON_TRY(const WeightView view, take_floats(name, {in, out}));
  const auto turned = std::make_shared<mx::array>(
      mx::contiguous(mx::transpose(ops::dense_array(view, mx::float32))));
  mx::eval(*turned);
  Handover::returned();
  const auto* data = reinterpret_cast<const std::byte*>(turned->data<float>());
  return load(LinearSource{
      {{data, turned->nbytes()}, {out, in}, Format::f32, turned, view.name}, {}, {}, {}});
}

Result<mx::array> Loader::vector(const std::string& name, std::vector<int64_t> shape) {
  return vector(name, std::move(shape), options_.dtype);
}

Result<mx::array> Loader::vector(const std::string& name, std::vector<int64_t> shape,
                                 mx::Dtype dtype) {
  TENON_TRY(const WeightView view, take_floats(name, std::move(shape)));
  bytes_ += view.bytes.size();
  return options_.kernels->load_vector(view, dtype);
}

Result<ops::Norm> Loader::norm(const std::string& path, int dim, const NormKind& kind) {
  TENON_TRY(mx::array weight, vector(path + ".weight", {dim}));
  if (kind.plus_one) {
    weight = weight + ops::scalar_like(1, weight);
    mx::eval(weight);
  }
  ops::Norm norm{weight, kind.eps, kind.centered, {}};
  if (kind.centered) {
    TENON_TRY(norm.bias, vector(path + ".bias", {dim}));
  }
  return norm;
}

Result<ops::ExpertsPtr> Loader::experts(const std::string& path, const std::string& each, int num,
                                        int out, int in) {
  std::vector<LinearSource> sources;
  // Where neither is there, the stack is what is missing.
  const bool one_by_one =
      !each.empty() && weights_.has(fmt::format(fmt::runtime(each), 0) + ".weight");
  if (weights_.has(path + ".weight") || !one_by_one) {
    TENON_TRY(sources, weights_.take_experts(path, num, out, in));
  } else {
    for (int i = 0; i < num; ++i) {
      TENON_TRY(LinearSource source,
                weights_.take_linear(fmt::format(fmt::runtime(each), i), out, in));
      sources.push_back(std::move(source));
    }
  }
  return load(sources);
}

Result<std::vector<ops::ExpertsPtr>> Loader::fused_experts(const std::string& path, int num,
                                                           const std::vector<int>& outs, int in) {
  const int out = std::accumulate(outs.begin(), outs.end(), 0);
  TENON_TRY(const std::vector<LinearSource> all, weights_.take_experts(path, num, out, in));
  std::vector<ops::ExpertsPtr> stacks;
  int64_t row = 0;
  for (const int n : outs) {
    std::vector<LinearSource> stack;
    for (const LinearSource& expert : all) stack.push_back(rows_of(expert, row, row + n));
    stacks.push_back(load(stack));
    row += n;
  }
  return stacks;
}

}  // namespace tenon::graph

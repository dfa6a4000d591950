#include "graph/families.h"

namespace tenon::graph {

namespace {
struct Family {
  const char* name;
  FamilyBuilder build;
};
constexpr Family kFamilies[] = {
#define ENTRY(family) {#family, build_##family},
#include "graph/families.def"
#undef ENTRY
};

// "qwen3.5" and "universal-dense" as file names: qwen35, universal_dense.
std::string family_file(profile::Graph graph) {
  std::string name = profile::graph_name(graph);
  std::erase(name, '.');
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}
}  // namespace

ops::KvShape KvScheme::shape(int layer, int num_kv_heads, int k_head_dim, int v_head_dim) const {
  const auto own = layers.find(layer);
  const Quantized& q = own == layers.end() ? all : own->second;
  const bool whole = k_head_dim % 64 == 0 && v_head_dim % 64 == 0;
  const int group = q.group_size > 0 ? q.group_size : whole ? 64 : 32;
  return {num_kv_heads, k_head_dim, v_head_dim, dtype, q.bits, group};
}

std::string KvScheme::text() const {
  if (!layers.empty()) return "by layer";
  return all.bits > 0 ? fmt::format("{} bits", all.bits) : ops::dtype_name(dtype);
}

Result<std::unique_ptr<Model>> build(const profile::Resolved& resolved,
                                     const profile::Manifest& manifest,
                                     checkpoint::Weights& weights, const BuildOptions& options) {
  TENON_OK(profile::assert_resolved(manifest, resolved));
  if (resolved.profile->execution.loop == profile::Loop::encode)
    return unsupported("profile {}: an encoder writes no text; tenon embed turns text into vectors",
                       resolved.profile->id);
  const std::string name = family_file(resolved.profile->execution.graph);
  for (const Family& family : kFamilies)
    if (name == family.name) return family.build(resolved, manifest, weights, options);
  return unsupported("profile {}: graph {} is not built yet in this version", resolved.profile->id,
                     profile::graph_name(resolved.profile->execution.graph));
}

// Norm weights are never quantized, so the first norm says what the checkpoint computes in.
Result<mx::Dtype> stored_dtype(const checkpoint::Weights& weights) {
  for (const std::string& name : weights.names()) {
    if (!name.ends_with("norm.weight")) continue;
    const Format format = weights.find(name)->format;
    if (format == Format::bf16) return mx::bfloat16;
    if (format == Format::f16) return mx::float16;
    return mx::float32;
  }
  return not_found("no norm weight in this checkpoint");
}

}  // namespace tenon::graph

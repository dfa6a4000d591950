// One config.json of random bytes: what is quantized how, which profile it resolves to, and the
// graph that reads it, as an encoder and as a drafter's head too. There are no tensors, so no graph
// is ever whole.
#include "checkpoint/quantization.h"
#include "fuzz/views.h"
#include "graph/graph.h"

namespace {

using namespace tenon;

void find_schemes(const Json& config) {
  const auto quantization = checkpoint::find_quantization(config, "fuzz");
  if (!quantization.ok() || !quantization->is_object()) return;
  for (const auto& [path, value] : quantization->items())
    (void)checkpoint::scheme_of(*quantization, path, "fuzz");
}

void build_all(const profile::Manifest& manifest) {
  graph::BuildOptions options;
  options.kernels = ops::make_audit_kernels();
  checkpoint::Weights none({}, "fuzz");
  const auto head = graph::build_draft_head(manifest, none, options);
  fuzz::require(!head.ok() && !head.error().message.empty());
  const auto resolved = profile::resolve(manifest);
  if (!resolved.ok()) return fuzz::require(!resolved.error().message.empty());
  const auto model = graph::build(*resolved, manifest, none, options);
  fuzz::require(!model.ok() && !model.error().message.empty());
  const auto encoder = graph::build_encoder(*resolved, manifest, none, options);
  fuzz::require(!encoder.ok() && !encoder.error().message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = parse_json({reinterpret_cast<const char*>(data), size});
  if (!config.ok() || !config->is_object()) return 0;
  find_schemes(*config);
  build_all({"fuzz", "safetensors", *config, nullptr, nullptr});
  return 0;
}

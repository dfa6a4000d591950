#include <stdexcept>

#include "cache/cache.h"

namespace tenon::cache {

#define ENTRY(kind)                                                      \
  Result<std::unique_ptr<LayerCache>> make_##kind(const LayerPlan& plan, \
                                                  const ops::Kernels& kernels);
#include "cache/kinds.def"
#undef ENTRY

namespace {
struct Kind {
  const char* name;
  Result<std::unique_ptr<LayerCache>> (*make)(const LayerPlan&, const ops::Kernels&);
};
constexpr Kind kKinds[] = {
#define ENTRY(kind) {#kind, make_##kind},
#include "cache/kinds.def"
#undef ENTRY
};
}  // namespace

std::vector<std::string> cache_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

Result<std::unique_ptr<LayerCache>> make_layer_cache(const LayerPlan& plan,
                                                     const ops::Kernels& kernels) {
  std::string name = plan.kind;
  if (name == "attention") {
    TENON_TRY(const auto pages, kernels.make_kv_pages(plan.kv));
    name = pages ? "paged" : "full";
  }
  for (const Kind& kind : kKinds)
    if (name == kind.name) return kind.make(plan, kernels);
  return unsupported("no cache kind '{}' in this build", plan.kind);
}

Result<CacheSet> CacheSet::make(const std::vector<LayerPlan>& plans, const ops::Kernels& kernels) {
  CacheSet set;
  for (const LayerPlan& plan : plans) {
    TENON_TRY(auto layer, make_layer_cache(plan, kernels));
    set.layers_.push_back(std::move(layer));
  }
  return set;
}

void CacheSet::open(int slot) {
  for (auto& layer : layers_) layer->open(slot);
}

void CacheSet::close(int slot) {
  for (auto& layer : layers_) layer->close(slot);
}

int CacheSet::len(int slot) const {
  const int len = layers_.empty() ? 0 : layers_.front()->len(slot);
  for (const auto& layer : layers_)
    if (layer->len(slot) != len)
      throw std::logic_error("[cache] layers of a row disagree on its length");
  return len;
}

void CacheSet::rollback(int slot, int len) {
  for (auto& layer : layers_) layer->rollback(slot, len);
}

std::vector<mx::array> CacheSet::state() const {
  std::vector<mx::array> arrays;
  for (const auto& layer : layers_) layer->collect(arrays);
  return arrays;
}

double CacheSet::bytes_per_token() const {
  double total = 0;
  for (const auto& layer : layers_) total += layer->bytes_per_token();
  return total;
}

uint64_t CacheSet::bytes() const {
  uint64_t total = 0;
  for (const auto& layer : layers_) total += layer->bytes();
  return total;
}

uint64_t CacheSet::copies() const {
  uint64_t total = 0;
  for (const auto& layer : layers_) total += layer->copies();
  return total;
}

}  // namespace tenon::cache

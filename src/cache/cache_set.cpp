#include <stdexcept>

#include "cache/cache.h"

namespace tenon::cache {

#define ENTRY(kind) std::unique_ptr<LayerCache> make_##kind(const LayerPlan& plan);
#include "cache/kinds.def"
#undef ENTRY

namespace {
struct Kind {
  const char* name;
  std::unique_ptr<LayerCache> (*make)(const LayerPlan&);
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

Result<std::unique_ptr<LayerCache>> make_layer_cache(const LayerPlan& plan) {
  for (const Kind& kind : kKinds)
    if (plan.kind == kind.name) return kind.make(plan);
  return unsupported("no cache kind '{}' in this build", plan.kind);
}

Result<CacheSet> CacheSet::make(const std::vector<LayerPlan>& plans) {
  CacheSet set;
  for (const LayerPlan& plan : plans) {
    TENON_TRY(auto layer, make_layer_cache(plan));
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

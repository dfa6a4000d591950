#include "ops/kernels/cpu/kv_pool.h"

#include <cstdlib>
#include <new>

namespace tenon::cpu {

void KvPool::Free::operator()(std::byte* p) const { std::free(p); }

int KvPool::take() {
  if (free_.empty()) {
    // aligned_alloc wants a size that is a multiple of the alignment; a page of 64 tokens is.
    auto* page = static_cast<std::byte*>(std::aligned_alloc(64, layout_.page_bytes()));
    if (page == nullptr) throw std::bad_alloc();
    pages_.emplace_back(page);
    free_.push_back(static_cast<int>(pages_.size()) - 1);
  }
  const int page = free_.back();
  free_.pop_back();
  return page;
}

}  // namespace tenon::cpu

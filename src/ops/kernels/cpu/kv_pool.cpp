#include "ops/kernels/cpu/kv_pool.h"

#include <cstdlib>
#include <new>

namespace tenon::cpu {

Status KvLayout::check() const {
  if (is_quantized(type) && group != 32 && group != 64 && group != 128)
    return unsupported("groups of {}: the CPU's pages have groups of 32, 64 or 128", group);
  for (int dim : {k_dim, v_dim}) {
    if (dim < 1 || dim > kHeadMax)
      return unsupported("heads of width {}: the CPU's pages hold widths from 1 to {}", dim,
                         kHeadMax);
    if (is_quantized(type) && dim % group != 0)
      return unsupported("heads of width {} in groups of {}: a group must divide the width", dim,
                         group);
  }
  return {};
}

void KvPool::Free::operator()(std::byte* p) const { std::free(p); }

int KvPool::take() {
  // aligned_alloc wants a size that is a multiple of the alignment; a page of 64 tokens is.
  std::unique_ptr<std::byte, Free> page(
      static_cast<std::byte*>(std::aligned_alloc(64, layout_.page_bytes())));
  if (page == nullptr) throw std::bad_alloc();
  ++num_taken_;
  if (free_.empty()) {
    pages_.push_back(std::move(page));
    return static_cast<int>(pages_.size()) - 1;
  }
  const int i = free_.back();
  free_.pop_back();
  pages_[i] = std::move(page);
  return i;
}

void KvPool::give(int page) {
  free_.push_back(page);
  pages_[page].reset();
  --num_taken_;
}

}  // namespace tenon::cpu

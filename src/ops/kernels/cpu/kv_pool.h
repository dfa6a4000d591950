// Keys and values of one layer, for all rows: pages of 64 tokens in plain memory, so that appending
// copies nothing. A page is also the key tile of the attention kernel. Inside a page, per key/value
// head: keys as [k_dim][64] (a vector lane is a key), then values as [64][v_dim] (a lane is a
// dimension).
//
// Owner: the pool owns pages; a row's page list is the cache's. Thread: take() and give() on the
// engine's; page contents are written and read inside dispatched kernels, ordered by tickets.
// Units: tokens, bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tenon::cpu {

constexpr int kPageTokens = 64;

enum class KvType { f32, f16 };
inline size_t kv_type_bytes(KvType t) { return t == KvType::f32 ? 4 : 2; }

struct KvLayout {
  int num_kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  KvType type = KvType::f16;

  size_t head_bytes() const { return size_t{kPageTokens} * (k_dim + v_dim) * kv_type_bytes(type); }
  size_t page_bytes() const { return num_kv_heads * head_bytes(); }
  size_t k_offset(int head) const { return head * head_bytes(); }
  size_t v_offset(int head) const {
    return k_offset(head) + size_t{kPageTokens} * k_dim * kv_type_bytes(type);
  }
};

class KvPool {
 public:
  explicit KvPool(const KvLayout& layout) : layout_(layout) {}
  const KvLayout& layout() const { return layout_; }
  // The index of a page whose contents are anything: attention never looks past a row's length.
  int take();
  void give(int page);  // its memory is free at once
  std::byte* page(int i) const { return pages_[i].get(); }  // pages do not move
  uint64_t bytes() const { return num_taken_ * layout_.page_bytes(); }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  KvLayout layout_;
  std::vector<std::unique_ptr<std::byte, Free>> pages_;
  std::vector<int> free_;  // indices without a page
  uint64_t num_taken_ = 0;
};

}  // namespace tenon::cpu

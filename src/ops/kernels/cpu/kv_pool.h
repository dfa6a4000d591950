// Keys and values of one layer, for all rows: pages of 64 tokens in plain memory, so that appending
// copies nothing. A page is also the key tile of the attention kernel. Inside a page, per key/value
// head: keys as [k_dim][64] (a vector lane is a key), then values as [64][v_dim] (a lane is a
// dimension).
//
// Quantized to 8 or 4 bits, each group of a token's head has a scale and a bias: value = scale *
// code + bias. They lie behind the codes of the keys, and of the values, as float32 [dim /
// group][2][64]: scales of 64 tokens, then biases. Two codes of 4 bits share a byte, the first in
// its low half: keys of dimensions 2i and 2i + 1, values of dimensions i and i + 16 of a block
// of 32.
//
// Owner: the pool owns pages; a row's page list is the cache's. Thread: take() and give() on the
// engine's; page contents are written and read inside dispatched kernels, ordered by tickets.
// Units: tokens, bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"

namespace tenon::cpu {

constexpr int kPageTokens = 64;
constexpr int kHeadMax = 1024;  // widest head
constexpr int kKvGroupMin = 32;
constexpr float kKvScaleMin = 1e-7f;  // of quantized keys and values

enum class KvType { f32, f16, q8, q4 };
constexpr bool is_quantized(KvType t) { return t == KvType::q8 || t == KvType::q4; }
constexpr int kv_bits(KvType t) {
  return t == KvType::f32 ? 32 : t == KvType::f16 ? 16 : t == KvType::q8 ? 8 : 4;
}

struct KvLayout {
  int num_kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  KvType type = KvType::f16;
  int group = 64;  // elements of a token's head under one scale; quantized types only

  // Whether pages can have this layout: widths 1 to 1024, groups 32, 64 or 128 that divide them.
  Status check() const;
  size_t page_bytes() const { return num_kv_heads * head_bytes(); }
  // Where a head's keys and values begin in a page, and how far behind that their scales do. All
  // are multiples of 64 bytes.
  size_t k_offset(int head) const { return head * head_bytes(); }
  size_t v_offset(int head) const { return k_offset(head) + part_bytes(k_dim); }
  size_t scales_offset(int dim) const { return size_t{kPageTokens} / 8 * dim * kv_bits(type); }

 private:
  size_t part_bytes(int dim) const {
    const size_t num_groups = is_quantized(type) ? dim / group : 0;
    return scales_offset(dim) + num_groups * 2 * kPageTokens * sizeof(float);
  }
  size_t head_bytes() const { return part_bytes(k_dim) + part_bytes(v_dim); }
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

// Drafts of several rows, one token after another, from logits that a source computes of them.
// Where every row wants its largest logit, tokens stay on the device and are read once at the end;
// otherwise each is drawn as the target will draw that step: same settings, same random number.
#pragma once
#include "decode/decode.h"

namespace tenon::decode {

class DraftChain {
 public:
  // `rows` outlives the chain. A drafting model may know more words than the target: ids end at
  // vocab_size.
  DraftChain(std::span<const DraftRow> rows, int vocab_size);
  // Rows by falling number of drafts: index into `rows` of the i-th.
  const std::vector<int>& order() const { return order_; }
  int num_steps() const { return num_steps_; }
  // The first so many of order() want draft j.
  int num_active(int j) const;
  // Draws draft j: logits [num_active(j), V] -> ids int32 [num_active(j)].
  mlx::core::array draw(const mlx::core::array& logits);
  std::vector<std::vector<int32_t>> finish();  // in the order of `rows`

 private:
  mlx::core::array draw_on_host(const mlx::core::array& logits);
  std::span<const DraftRow> rows_;
  int vocab_size_;
  bool on_device_;
  int num_steps_ = 0;
  std::vector<int> order_;
  std::vector<mlx::core::array> steps_;  // on_device_: ids of each step
  std::vector<std::vector<int32_t>> histories_;  // else, by order(): known, then drafts
};

// chain() of those rows that are ready, and nothing of the others, in the order of `rows`.
std::vector<std::vector<int32_t>> draft_ready(
    std::span<const DraftRow> rows, const std::function<bool(const DraftRow&)>& is_ready,
    const std::function<std::vector<std::vector<int32_t>>(std::span<const DraftRow>)>& chain);

}  // namespace tenon::decode

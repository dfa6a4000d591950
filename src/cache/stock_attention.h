// Attention of single rows by MLX's stock operations in mlx-lm's order, so that its bits are
// mlx-lm's. Rows go one by one: stock attention of a padded batch would not be bit-equal to the row
// alone. Source: mlx-lm models/base.py, cache.py (masks), gemma2.py (soft-capped scores).
#pragma once
#include "cache/arrays.h"

namespace tenon::cache {

// What a query sees: nothing left out, all up to itself, or where the array says true.
struct Mask {
  std::string mode;  // "", "causal", "array"
  std::optional<mx::array> seen;  // bool [L, S] or [S]
  static Mask none() { return {}; }
  static Mask causal() { return {"causal", std::nullopt}; }
  static Mask of(mx::array seen) { return {"array", std::move(seen)}; }
};

// bool [num_new, offset + num_new]; window 0: none.
mx::array causal_mask(int num_new, int offset, int window);
// That of a cache which holds every token.
Mask full_mask(int num_new, int offset, const ops::Attend& how);

// q [1, H, L, D], k and v [1, K, S, D] -> [1, H, L, D]. With a soft cap the mask is an array.
mx::array attend_heads(const mx::array& q, const mx::array& k, const mx::array& v,
                       const ops::Attend& how, const Mask& mask);
// Scores with the cap over them.
mx::array soft_capped(const mx::array& scores, float cap);
// Scores where the mask says so, else the lowest number of their dtype.
mx::array masked(const mx::array& scores, const mx::array& seen);

// [N, H, D] from attend_row(slice, q [1, H, L, D]) -> [1, H, L, D].
template <class AttendRow>
mx::array attend_rows(const mx::array& q, ops::Rows rows, AttendRow&& attend_row) {
  std::vector<mx::array> outs;
  for (const ops::RowSlice& slice : rows)
    outs.push_back(tokens_first(attend_row(slice, heads_first(q, slice))));
  return outs.size() == 1 ? outs[0] : mx::concatenate(outs, 0);
}

}  // namespace tenon::cache

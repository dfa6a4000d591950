// Contract of every cache kind in kinds.def: what attend() returns does not depend on how tokens
// were cut into steps, on other rows, or on what was rolled back; rows do not see each other.
#include "cache/cache.h"

#include <gtest/gtest.h>

#include "base/handover.h"

namespace tenon::cache {
namespace {

constexpr int kHeads = 4, kKv = 2, kDim = 8;

mx::array random(int n, int heads, int seed) {
  return mx::random::normal({n, heads, kDim}, mx::float32, 0, 1, mx::random::key(seed));
}
mx::array tokens(const mx::array& x, int from, int to) {
  return mx::slice(x, {from, 0, 0}, {to, x.shape(1), x.shape(2)});
}
// Compared by MLX itself: its buffers move between its threads, and only it knows the order.
bool same_bits(const mx::array& a, const mx::array& b) {
  if (a.shape() != b.shape()) return false;
  const auto bits = [](const mx::array& x) { return mx::view(mx::contiguous(x), mx::uint32); };
  return mx::all(mx::equal(bits(a), bits(b))).item<bool>();
}

class Kind : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<LayerCache> make() {
    const std::string kernels = GetParam() == "full" ? "mlx" : "tenon";
    auto made = make_layer_cache({GetParam(), {kKv, kDim, kDim, mx::float32}},
                                 **ops::make_kernels({.name = kernels}));
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
  // Feeds tokens [from, to) of the sequence to one row.
  mx::array feed(LayerCache& cache, int slot, int from, int to) {
    const ops::RowSlice row{slot, 0, to - from, from};
    mx::array out = cache.attend(tokens(q, from, to), tokens(k, from, to), tokens(v, from, to),
                                 std::span(&row, 1), how);
    settle(cache, out);
    return out;
  }
  static void settle(LayerCache& cache, const mx::array& out) {
    std::vector<mx::array> state{out};
    cache.collect(state);
    mx::eval(state);
    Handover::returned();
  }
  const int n = 300;  // past a slab and a page
  const mx::array q = random(n, kHeads, 1), k = random(n, kKv, 2), v = random(n, kKv, 3);
  const ops::Attend how{0.35f};
};

TEST_P(Kind, ChunksEqualTheWhole) {
  auto whole = make();
  whole->open(0);
  const mx::array want = feed(*whole, 0, 0, n);
  for (int chunk : {1, 7, 64, 255, 256, 257}) {
    auto cut = make();
    cut->open(3);
    for (int at = 0; at < n; at += chunk) {
      const int to = std::min(n, at + chunk);
      EXPECT_TRUE(same_bits(feed(*cut, 3, at, to), tokens(want, at, to))) << chunk << " at " << at;
    }
    EXPECT_EQ(cut->len(3), n);
  }
}

TEST_P(Kind, RowsOfABatchEqualRowsAlone) {
  auto alone = make(), batch = make();
  alone->open(0);
  batch->open(0);
  batch->open(5);
  const mx::array want = feed(*alone, 0, 0, 40);
  feed(*batch, 5, 0, 13);
  // Row 0 brings 40 fresh tokens, row 5 its tokens 13..20, in one call.
  const ops::RowSlice rows[] = {{0, 0, 40, 0}, {5, 40, 7, 13}};
  const auto both = [&](const mx::array& x) {
    return mx::concatenate({tokens(x, 0, 40), tokens(x, 13, 20)}, 0);
  };
  const mx::array out = batch->attend(both(q), both(k), both(v), rows, how);
  settle(*batch, out);
  EXPECT_TRUE(same_bits(tokens(out, 0, 40), want));
  EXPECT_TRUE(same_bits(tokens(out, 40, 47), tokens(want, 13, 20)));
  EXPECT_EQ(batch->len(5), 20);
}

TEST_P(Kind, RollbackThenAppendEqualsNeverAppended) {
  auto plain = make(), back = make();
  plain->open(0);
  back->open(0);
  const mx::array want = feed(*plain, 0, 0, n);
  feed(*back, 0, 0, 200);
  for (int keep : {199, 150, 64, 1, 0}) {
    back->rollback(0, keep);
    EXPECT_EQ(back->len(0), keep);
    EXPECT_TRUE(same_bits(feed(*back, 0, keep, 280), tokens(want, keep, 280))) << keep;
    back->rollback(0, 200);
  }
}

TEST_P(Kind, CloseForgetsAndGivesMemoryBack) {
  auto cache = make();
  cache->open(0);
  feed(*cache, 0, 0, 100);
  EXPECT_GT(cache->bytes(), 0u);
  EXPECT_GT(cache->bytes_per_token(), 0);
  cache->close(0);
  EXPECT_EQ(cache->bytes(), 0u);
  cache->open(0);
  EXPECT_EQ(cache->len(0), 0);
}

TEST_P(Kind, MisuseThrows) {
  auto cache = make();
  cache->open(0);
  EXPECT_THROW(cache->open(0), std::exception);
  EXPECT_THROW(feed(*cache, 0, 5, 9), std::exception);  // not at its offset
  EXPECT_THROW(cache->rollback(0, 1), std::exception);
  EXPECT_NO_THROW(cache->close(7));
}

INSTANTIATE_TEST_SUITE_P(Registry, Kind, ::testing::ValuesIn(cache_kinds()),
                         [](const auto& kind) { return kind.param; });

TEST(CacheSet, UnknownKindIsRefused) {
  EXPECT_EQ(
      make_layer_cache({"nonesuch", {1, 8, 8, mx::float32}}, **ops::make_kernels({})).error().code,
      Code::unsupported);
}

}  // namespace
}  // namespace tenon::cache

// Contract of every cache kind in kinds.def: what comes out does not depend on how tokens were cut
// into steps, on other rows, on what was rolled back or on a restart; rows do not see each other,
// and nothing grows that should not. Kinds' own rules: kinds_test.cpp.
//
// Cases of the caches specification 9 and where they are covered:
//    1 Full.GrowsBySlabs                       2 RollbackThenAppend, Masks
//    3 Quantized.AppendingIsQuantizing         4 Quantized.AttendsToWhatItStored
//    5 AgreesWithPlainArithmetic               6 Masks, Rotating.StepsAroundTheWindow
//    7 Rotating.GoesBackWhileAllIsThere        8 Signatures
//    9 TrueCopy                               13, 14 ChunksEqualTheWhole (recurrent)
//   17 RollbackThenAppend (recurrent)         18, 19 Recurrent.RollbackToTheMark
//   20, 21 Recurrent.RefusesOtherLengths      22 ThousandRounds
//   27 SnapshotGoesOn, SnapshotThatDoesNotFit (in memory: files are the disk tier's)
//   30 HeldArraysStayWhole, with slices of them too
// More of each: spec_cases_test.cpp, spec_recurrent_test.cpp (there also 12, 15, 16; 10 and 11 as
// snapshots: rows are slots of their own and never merge). 24 to 26 are Metal's; 23, 28 and 29
// belong to parts that are not built here.
#include <gtest/gtest.h>

#include "cache/test_rows.h"

namespace tenon::cache {
namespace {

class Kind : public ::testing::TestWithParam<Variant> {
 protected:
  const Variant& variant() const { return layer.variant; }
  // The sequence's outputs from `from` on: three tokens one by one, then seven at once.
  mx::array go_on(LayerCache& cache, int slot, int from) const {
    std::vector<mx::array> outs;
    for (int i = 0; i < 3; ++i) outs.push_back(layer.feed(cache, slot, from + i, from + i + 1));
    outs.push_back(layer.feed(cache, slot, from + 3, from + 10));
    return mx::concatenate(outs, 0);
  }
  // A row of `len` tokens, the last of which came one by one.
  std::unique_ptr<LayerCache> filled_to(int len) const {
    auto cache = layer.make();
    cache->open(0);
    layer.advance_to(*cache, 0, std::max(1, len - 4), 300);
    layer.advance_to(*cache, 0, len, 1);
    return cache;
  }
  // Lengths around everything that could matter: slabs, pages, the window.
  std::vector<int> lengths() const {
    const int w = variant().window();
    return {1, 63, w - 2, w, w + 1, 2 * w + 3, 300};
  }
  const Layer layer{GetParam()};
};

TEST_P(Kind, ChunksEqualTheWhole) {
  const int n = variant().cuts_show ? variant().window() : 300;
  auto whole = layer.make();
  whole->open(0);
  const mx::array want = layer.feed(*whole, 0, 0, n);
  for (int chunk : {1, 2, 3, 7, 64, 255, 256, 257}) {
    auto cut = layer.make();
    cut->open(3);
    for (int at = 0; at < n; at += chunk) {
      const int to = std::min(n, at + chunk);
      EXPECT_TRUE(same_bits(layer.feed(*cut, 3, at, to), rows_of(want, at, to)))
          << chunk << " at " << at;
    }
    EXPECT_EQ(cut->len(3), n);
    EXPECT_EQ(cut->copies(), 0u);
  }
}

TEST_P(Kind, RowsOfABatchEqualRowsAlone) {
  auto alone = layer.make(), batch = layer.make();
  for (int slot : {0, 5}) {
    alone->open(slot);
    batch->open(slot);
  }
  for (LayerCache* cache : {alone.get(), batch.get()}) layer.feed(*cache, 5, 0, 113);
  // Row 0 brings 40 fresh tokens, row 5 its next 7, in one call; then both go on by one.
  const mx::array first = layer.step(*batch, {{0, 0, 40, 0}, {5, 40, 7, 113}});
  const mx::array second = layer.step(*batch, {{5, 0, 1, 120}, {0, 1, 1, 40}});
  EXPECT_TRUE(same_bits(rows_of(first, 0, 40), layer.feed(*alone, 0, 0, 40)));
  EXPECT_TRUE(same_bits(rows_of(first, 40, 47), layer.feed(*alone, 5, 113, 120)));
  EXPECT_TRUE(same_bits(rows_of(second, 0, 1), layer.feed(*alone, 5, 120, 121)));
  EXPECT_TRUE(same_bits(rows_of(second, 1, 2), layer.feed(*alone, 0, 40, 41)));
  EXPECT_EQ(batch->len(5), 121);
}

// A marked step of which `keep` tokens stay equals a step of those tokens.
TEST_P(Kind, RollbackThenAppendEqualsNeverAppended) {
  constexpr int kStep = 5;
  const int w = variant().window();
  for (int base : {1, w - 2, w, 2 * w + 3})
    for (int keep = 0; keep <= kStep; ++keep) {
      const auto back = filled_to(base), plain = filled_to(base);
      back->mark(0);
      layer.feed(*back, 0, base, base + kStep);
      back->rollback(0, base + keep);
      EXPECT_EQ(back->len(0), base + keep);
      if (keep > 0) layer.feed(*plain, 0, base, base + keep);
      EXPECT_TRUE(same_bits(go_on(*back, 0, base + keep), go_on(*plain, 0, base + keep)))
          << base << " + " << keep;
    }
}

// A chain of steps goes back to the mark as if none had come: what drafting models do.
TEST_P(Kind, ManyStepsGoBackToTheMark) {
  const int w = variant().window();
  for (int base : {1, w - 2, w, 2 * w + 3, 3 * w - 7})
    for (int num : {1, 2, 9}) {
      const auto back = filled_to(base), plain = filled_to(base);
      back->mark(0);
      layer.advance_to(*back, 0, base + num, 1);
      layer.feed(*back, 0, base + num, base + num + 70);
      back->rollback(0, base);
      EXPECT_EQ(back->len(0), base);
      EXPECT_TRUE(same_bits(go_on(*back, 0, base), go_on(*plain, 0, base))) << base << " + " << num;
    }
}

// Without a mark a kind may refuse, but then nothing has happened.
TEST_P(Kind, RollbackWithoutAMarkIsExactOrRefused) {
  for (int keep : {199, 150, 64, 20, 1, 0}) {
    auto back = layer.make(), plain = layer.make();
    back->open(0);
    plain->open(0);
    layer.feed(*back, 0, 0, 100);
    layer.feed(*back, 0, 100, 200);
    bool went = true;
    const bool can = back->can_rollback(0, keep);
    try {
      back->rollback(0, keep);
    } catch (const std::logic_error& e) {
      went = false;
      EXPECT_NE(std::string(e.what()).find(std::to_string(keep) + " of 200"), std::string::npos);
    }
    EXPECT_EQ(went, can) << keep;
    EXPECT_TRUE(went || (!variant().grows() && keep > 0)) << keep;
    const int len = went ? keep : 200;
    EXPECT_EQ(back->len(0), len);
    layer.advance_to(*plain, 0, len, 100);
    EXPECT_TRUE(same_bits(go_on(*back, 0, len), go_on(*plain, 0, len))) << keep;
  }
}

// MLX gives some scalars back only after eval has returned.
constexpr uint64_t kSlackBytes = 4096;

// Bytes and MLX's memory reach in 1,000 rounds what they reached in the first 100.
TEST_P(Kind, ThousandRoundsLeaveMemoryFlat) {
  auto cache = layer.make();
  cache->open(0);
  int len = variant().window() + 3;
  layer.advance_to(*cache, 0, len, 300);
  uint64_t bytes_max = 0, active_max = 0;
  for (int round = 0; round < 1100; ++round) {
    cache->mark(0);
    layer.feed(*cache, 0, len, len + 4);
    cache->rollback(0, len + round % 4);
    if (variant().grows()) cache->rollback(0, len);
    len = cache->len(0);
    if (round < 100) {
      bytes_max = std::max(bytes_max, cache->bytes());
      active_max = std::max<uint64_t>(active_max, mx::get_active_memory());
    } else {
      ASSERT_LE(cache->bytes(), bytes_max) << round;
      ASSERT_LE(mx::get_active_memory(), active_max + kSlackBytes) << round;
    }
  }
  EXPECT_EQ(cache->copies(), 0u);
}

TEST_P(Kind, SnapshotGoesOnAsIfNeverStopped) {
  for (int len : lengths()) {
    const auto cache = filled_to(len), other = layer.make();
    const Snapshot snapshot = cache->save(0);
    EXPECT_EQ(snapshot.signature, cache->signature());
    const mx::array want = go_on(*cache, 0, len);

    cache->close(0);
    cache->open(0);
    other->open(7);
    ASSERT_TRUE(cache->load(0, snapshot).ok());
    ASSERT_TRUE(other->load(7, snapshot).ok());
    EXPECT_EQ(cache->len(0), len);
    EXPECT_TRUE(same_bits(go_on(*cache, 0, len), want)) << len;
    // Also through a round.
    other->mark(7);
    layer.feed(*other, 7, len, len + 5);
    other->rollback(7, len);
    EXPECT_TRUE(same_bits(go_on(*other, 7, len), want)) << len;
  }
}

TEST_P(Kind, SnapshotOfNothing) {
  auto cache = layer.make();
  cache->open(0);
  cache->open(1);
  const Snapshot snapshot = cache->save(0);
  EXPECT_TRUE(snapshot.parts.empty());
  ASSERT_TRUE(cache->load(1, snapshot).ok());
  EXPECT_TRUE(same_bits(go_on(*cache, 1, 0), go_on(*cache, 0, 0)));
}

TEST_P(Kind, SnapshotThatDoesNotFitIsAnErrorAndLeavesTheRowEmpty) {
  auto cache = layer.make(), fresh = layer.make();
  for (LayerCache* c : {cache.get(), fresh.get()}) c->open(0);
  cache->open(1);
  layer.feed(*cache, 0, 0, 130);
  const Snapshot good = cache->save(0);
  const auto refused = [&](Code code, auto&& spoil) {
    Snapshot bad = good;
    spoil(bad);
    Status loaded = cache->load(1, bad);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
    EXPECT_EQ(cache->len(1), 0);
  };
  refused(Code::invalid, [](Snapshot& s) { s.signature = "kv:other"; });
  refused(Code::corrupt, [](Snapshot& s) { s.parts.pop_back(); });
  refused(Code::corrupt, [](Snapshot& s) { s.parts.back().bytes.pop_back(); });
  refused(Code::corrupt, [](Snapshot& s) { s.len = -1; });
  EXPECT_THROW(static_cast<void>(cache->load(0, good)), std::logic_error);  // not empty
  EXPECT_TRUE(same_bits(go_on(*cache, 1, 0), go_on(*fresh, 0, 0)));
}

// A layer without keys of its own sees what the layer before it appended, in every kind of step.
TEST_P(Kind, SharedKeysEqualOwnOnes) {
  if (variant().recurs()) return;  // no attention
  auto donor = layer.make(), own = layer.make();
  for (int slot : {0, 1}) {
    donor->open(slot);
    own->open(slot);
    for (LayerCache* cache : {donor.get(), own.get()}) layer.feed(*cache, slot, 0, 20 + 90 * slot);
  }
  int at[] = {20, 110};
  for (auto [first, second] : {std::pair{1, 1}, {5, 1}, {1, 9}, {1, 1}}) {
    const std::vector<ops::RowSlice> rows = {{0, 0, first, at[0]}, {1, first, second, at[1]}};
    const mx::array ids = Layer::positions(rows);
    const mx::array theirs = layer.graph(*donor, rows);
    const mx::array shared = layer.look(*donor, rows);
    settle(*donor, mx::concatenate({theirs, shared}, 0));
    const mx::array mine = own->attend({mx::take(layer.other_q, ids, 0), mx::take(layer.k, ids, 0),
                                        mx::take(layer.v, ids, 0), std::nullopt},
                                       rows, variant().how);
    settle(*own, mine);
    EXPECT_TRUE(same_bits(shared, mine)) << at[0];
    at[0] += first;
    at[1] += second;
  }
}

// Softmax over all tokens with a mask, written out.
TEST_P(Kind, AgreesWithPlainArithmetic) {
  if (variant().recurs()) return;  // no attention
  const ops::Attend& how = variant().how;
  const int n = 200;
  const auto heads = [&](const mx::array& x, int repeats) {
    return mx::transpose(mx::repeat(rows_of(x, 0, n), repeats, 1), {1, 0, 2});
  };
  const mx::array scores =
      mx::matmul(heads(layer.q, 1), mx::transpose(heads(layer.k, kHeads / kKv), {0, 2, 1})) *
      mx::array(how.scale);
  const mx::array capped =
      how.softcap > 0 ? mx::tanh(scores / mx::array(how.softcap)) * mx::array(how.softcap) : scores;
  const mx::array behind = mx::expand_dims(mx::arange(n), 1) - mx::expand_dims(mx::arange(n), 0);
  const mx::array seen =
      mx::logical_and(mx::greater_equal(behind, mx::array(0)),
                      mx::less(behind, mx::array(how.window > 0 ? how.window : n)));
  const mx::array weights = mx::softmax(mx::where(seen, capped, mx::array(-1e30f)), -1, true);
  const mx::array want =
      mx::transpose(mx::matmul(weights, heads(layer.v, kHeads / kKv)), {1, 0, 2});

  const int bits = variant().plan.kv.bits;
  const float tolerance = bits == 0 ? 2e-5f : bits == 8 ? 0.03f : 0.5f;
  for (int chunk : {1, 9, 200}) {
    auto cache = layer.make();
    cache->open(0);
    for (int at = 0; at < n; at += chunk) {
      const int to = std::min(n, at + chunk);
      EXPECT_LT(distance(layer.feed(*cache, 0, at, to), rows_of(want, at, to)), tolerance)
          << chunk << " at " << at;
    }
  }
}

TEST_P(Kind, CloseForgetsAndGivesMemoryBack) {
  auto cache = layer.make();
  cache->open(0);
  const uint64_t active = mx::get_active_memory();
  cache->mark(0);
  layer.feed(*cache, 0, 0, 100);
  EXPECT_GT(cache->bytes(), 0u);
  EXPECT_GT(cache->bytes_per_token() + static_cast<double>(cache->row_bytes()), 0);
  cache->close(0);
  EXPECT_EQ(cache->bytes(), 0u);
  EXPECT_LE(mx::get_active_memory(), active + kSlackBytes);
  cache->open(0);
  EXPECT_EQ(cache->len(0), 0);
}

TEST_P(Kind, MisuseThrows) {
  auto cache = layer.make();
  cache->open(0);
  EXPECT_THROW(cache->open(0), std::logic_error);
  EXPECT_THROW(layer.feed(*cache, 0, 5, 9), std::logic_error);  // not at its offset
  EXPECT_THROW(layer.feed(*cache, 1, 0, 4), std::logic_error);  // not open
  EXPECT_THROW(cache->rollback(0, 1), std::logic_error);
  EXPECT_THROW(cache->rollback(0, -1), std::logic_error);
  EXPECT_THROW(cache->mark(1), std::logic_error);
  EXPECT_THROW(static_cast<void>(cache->save(1)), std::logic_error);
  EXPECT_NO_THROW(cache->close(7));
  layer.feed(*cache, 0, 0, 8);
  EXPECT_THROW(cache->rollback(0, 9), std::logic_error);
  if (variant().recurs()) {
    EXPECT_THROW(layer.look(*cache, {{0, 0, 1, 7}}), std::logic_error);
    return;
  }
  EXPECT_THROW(layer.look(*cache, {{0, 0, 1, 8}}), std::logic_error);  // nothing appended there
  const mx::array none = mx::zeros({1, 1});
  EXPECT_THROW(cache->advance({none, none, none, none}, layer.mixer, {}), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Registry, Kind, ::testing::ValuesIn(variants()),
                         [](const auto& kind) { return kind.param.name; });

// Layers of different kinds as one.
TEST(CacheSet, RowsLiveInAllLayersOrInNone) {
  const Layer attention(Variant{"", "tenon", {"paged", plain_kv()}, {0.25f}});
  const Layer delta(Variant{"", "tenon", {"recurrent", plain_kv(), 0, kDelta}, {}});
  auto set = *CacheSet::make({attention.variant.plan, delta.variant.plan}, *attention.kernels);
  set.open(0);
  attention.feed(set.layer(0), 0, 0, 9);
  EXPECT_THROW(static_cast<void>(set.len(0)), std::logic_error);  // layers disagree
  delta.feed(set.layer(1), 0, 0, 9);
  EXPECT_EQ(set.len(0), 9);
  EXPECT_EQ(set.bytes(), set.layer(0).bytes() + set.layer(1).bytes());
  EXPECT_EQ(set.bytes_per_token(), set.layer(0).bytes_per_token());
  EXPECT_EQ(set.row_bytes(), set.layer(1).row_bytes());

  std::vector<Snapshot> saved = set.save(0);
  set.mark(0);
  attention.feed(set.layer(0), 0, 9, 12);
  delta.feed(set.layer(1), 0, 9, 12);
  set.rollback(0, 10);
  EXPECT_EQ(set.len(0), 10);
  EXPECT_FALSE(set.can_rollback(0, 5));  // the pages could, the state cannot
  EXPECT_THROW(set.rollback(0, 5), std::logic_error);
  EXPECT_EQ(set.len(0), 10);

  set.open(1);
  EXPECT_TRUE(set.load(1, saved).ok());
  EXPECT_EQ(set.len(1), 9);
  set.rollback(1, 0);
  saved[1].signature = "other";
  EXPECT_EQ(set.load(1, saved).error().code, Code::invalid);
  EXPECT_EQ(set.len(1), 0);
  saved[1].len = 8;
  EXPECT_EQ(set.load(1, saved).error().code, Code::corrupt);
  EXPECT_FALSE(set.load(1, {}).ok());
  set.close(0);
  set.close(1);
  EXPECT_EQ(set.bytes(), 0u);
}

TEST(CacheSet, RefusalsNameTheLayer) {
  const auto kernels = *ops::make_kernels({.name = "mlx"});
  const auto error = CacheSet::make({{"full", plain_kv()}, {"nonesuch", plain_kv()}}, *kernels);
  EXPECT_EQ(error.error().code, Code::unsupported);
  EXPECT_NE(error.error().message.find("layer 1"), std::string::npos);
  EXPECT_NE(error.error().message.find("nonesuch"), std::string::npos);
}

}  // namespace
}  // namespace tenon::cache

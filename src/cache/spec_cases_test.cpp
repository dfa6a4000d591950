// Cases of the caches specification 9 that the contract (cache_test.cpp) and the kinds' own tests
// leave partly open; each names its number.
#include <gtest/gtest.h>

#include "cache/stock_attention.h"
#include "cache/test_rows.h"

namespace tenon::cache {
namespace {

constexpr float kNear = 1e-5f;

Layer layer_of(LayerPlan plan, ops::Attend how = {0.25f}, std::string kernels = "mlx") {
  return Layer(Variant{"", std::move(kernels), std::move(plan), how});
}

// Tokens [from, from + num) of the sequence, brought to a row wherever that stands.
struct Brought {
  int slot, from, num;
};
mx::array bring(const Layer& layer, LayerCache& cache, const std::vector<Brought>& list) {
  std::vector<ops::RowSlice> rows;
  std::vector<int32_t> tokens;
  for (const Brought& b : list) {
    rows.push_back({b.slot, static_cast<int>(tokens.size()), b.num, cache.len(b.slot)});
    for (int i = 0; i < b.num; ++i) tokens.push_back((b.from + i) % kTokens);
  }
  const mx::array ids(tokens.begin(), {static_cast<int>(tokens.size())}, mx::int32);
  const auto of = [&](const mx::array& x) { return mx::take(x, ids, 0); };
  const mx::array none = mx::zeros({1, 1});
  const mx::array out =
      layer.variant.recurs()
          ? cache.advance({of(layer.qkv), none, of(layer.b), of(layer.a)}, layer.mixer, rows)
          : cache.attend({of(layer.q), of(layer.k), of(layer.v), {}}, rows, layer.variant.how);
  settle(cache, out);
  return out;
}

bool same_parts(const Snapshot& a, const Snapshot& b) {
  if (a.len != b.len || a.at != b.at || a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i)
    if (a.parts[i].shape != b.parts[i].shape || a.parts[i].dtype != b.parts[i].dtype ||
        a.parts[i].bytes != b.parts[i].bytes)
      return false;
  return true;
}

class AnyKind : public ::testing::TestWithParam<Variant> {
 protected:
  std::unique_ptr<LayerCache> open(std::initializer_list<int> slots = {0}) const {
    auto cache = layer.make();
    for (int slot : slots) cache->open(slot);
    return cache;
  }
  // To a length that was reached one by one at its end.
  void advance_to(LayerCache& cache, int slot, int len) const {
    layer.advance_to(cache, slot, std::max(1, len - 4), 300);
    layer.advance_to(cache, slot, len, 1);
  }
  mx::array go_on(LayerCache& cache, int slot) const {
    return mx::concatenate(
        {bring(layer, cache, {{slot, 50, 1}}), bring(layer, cache, {{slot, 90, 7}})}, 0);
  }
  const Layer layer{GetParam()};
};

// Cases 2 and 17: what is appended after a rollback stands where the forgotten tokens stood, and
// these were others.
TEST_P(AnyKind, ForgottenTokensLeaveNoTrace) {
  const int w = GetParam().window();
  for (int base : {w - 2, 2 * w + 3})
    for (int keep : {0, 1, 3, 5}) {
      auto back = open(), plain = open();
      advance_to(*back, 0, base);
      advance_to(*plain, 0, base);
      back->mark(0);
      bring(layer, *back, {{0, 200, 5}});
      back->rollback(0, base + keep);
      if (keep > 0) bring(layer, *plain, {{0, 200, keep}});
      EXPECT_EQ(back->len(0), base + keep);
      EXPECT_TRUE(same_bits(go_on(*back, 0), go_on(*plain, 0))) << base << " + " << keep;
    }
}

// Case 20, by rows instead of the refusal for batches: rows that shared a step go back each to a
// length of its own.
TEST_P(AnyKind, RowsOfOneStepGoBackEachOnItsOwn) {
  const int w = GetParam().window();
  const int bases[] = {w + 3, 9, 2 * w + 1}, keeps[] = {1, 3, 4};
  auto batch = open({0, 1, 2});
  std::vector<std::unique_ptr<LayerCache>> alone;
  for (int i = 0; i < 3; ++i) {
    alone.push_back(open({i}));
    advance_to(*batch, i, bases[i]);
    advance_to(*alone[i], i, bases[i]);
    batch->mark(i);
  }
  bring(layer, *batch, {{0, 200, 4}, {1, 220, 4}, {2, 240, 4}});
  for (int i = 0; i < 3; ++i) batch->rollback(i, bases[i] + keeps[i]);
  for (int i = 0; i < 3; ++i) {
    bring(layer, *alone[i], {{i, 200 + 20 * i, keeps[i]}});
    EXPECT_EQ(batch->len(i), bases[i] + keeps[i]);
    EXPECT_TRUE(same_bits(go_on(*batch, i), go_on(*alone[i], i))) << i;
  }
}

// Case 10: a row out of a batch that others have left is the row that was never in one.
TEST_P(AnyKind, ARowOutOfABatchIsTheRowAlone) {
  auto batch = open({0, 1, 2}), alone = open({1}), other = open({4});
  bring(layer, *batch, {{0, 0, 33}, {1, 10, 40}, {2, 5, 1}});
  bring(layer, *alone, {{1, 10, 40}});
  for (int i = 0; i < 3; ++i) {
    bring(layer, *batch, {{2, 60 + i, 2}, {1, 100 + i, 1}});
    bring(layer, *alone, {{1, 100 + i, 1}});
  }
  batch->close(0);
  bring(layer, *batch, {{1, 130, 6}, {2, 30, 3}});
  bring(layer, *alone, {{1, 130, 6}});
  batch->close(2);
  const Snapshot taken = batch->save(1), kept = alone->save(1);
  EXPECT_EQ(taken.signature, kept.signature);
  EXPECT_EQ(taken.len, 49);
  // A page's bytes behind the last token are anything.
  EXPECT_TRUE(GetParam().plan.kind == "paged" || same_parts(taken, kept));
  ASSERT_TRUE(other->load(4, taken).ok());
  const mx::array want = go_on(*alone, 1);
  EXPECT_TRUE(same_bits(go_on(*other, 4), want));
  EXPECT_TRUE(same_bits(go_on(*batch, 1), want));
}

// Case 11: rows never merge, but a snapshot may lack its state, or have one it should not.
TEST_P(AnyKind, AStateOnOneSideOnlyIsRefused) {
  auto cache = open({0, 1});
  bring(layer, *cache, {{0, 0, 30}});
  const Snapshot good = cache->save(0);
  Snapshot without = good, with = good;
  without.parts.clear();
  with.len = 0;
  for (const Snapshot& bad : {without, with}) {
    const Status loaded = cache->load(1, bad);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Code::corrupt) << loaded.error().message;
    EXPECT_EQ(cache->len(1), 0);
  }
  ASSERT_TRUE(cache->load(1, good).ok());
  EXPECT_TRUE(same_bits(go_on(*cache, 1), go_on(*cache, 0)));
}

INSTANTIATE_TEST_SUITE_P(Registry, AnyKind, ::testing::ValuesIn(variants()),
                         [](const auto& kind) { return kind.param.name; });

// Case 1: growing by slabs moves no bit of what is there.
TEST(PlainRows, UnevenAppendsHoldWhatOneHolds) {
  for (const LayerPlan& plan : {LayerPlan{"full", plain_kv()}, LayerPlan{"quantized", plain_kv(8)},
                                LayerPlan{"quantized", plain_kv(4)}}) {
    const Layer layer = layer_of(plan);
    auto cut = layer.make();
    cut->open(0);
    int len = 0;
    for (int num : {255, 1, 1, 600}) {
      layer.feed(*cut, 0, len, len + num);
      len += num;
      auto whole = layer.make();
      whole->open(0);
      layer.feed(*whole, 0, 0, len);
      EXPECT_TRUE(same_parts(cut->save(0), whole->save(0))) << plan.kind << " at " << len;
    }
  }
  const Layer paged = layer_of({"paged", plain_kv()}, {0.25f}, "tenon");
  auto cut = paged.make(), whole = paged.make();
  cut->open(0);
  whole->open(0);
  int len = 0;
  for (int num : {255, 1, 1, 600}) {
    paged.feed(*cut, 0, len, len + num);
    len += num;
  }
  paged.feed(*whole, 0, 0, len);
  EXPECT_TRUE(
      same_bits(paged.look(*cut, {{0, 0, 1, len - 1}}), paged.look(*whole, {{0, 0, 1, len - 1}})));
}

// Case 4: also where a window or a soft cap makes the mask an array, and with our kernels.
TEST(QuantizedRows, AttendThroughEveryMask) {
  const ops::Attend hows[] = {{0.25f}, {0.25f, 7}, {0.25f, 0, 5.0f}, {0.25f, 7, 5.0f}};
  for (const char* kernels : {"mlx", "tenon"})
    for (int bits : {4, 8})
      for (const ops::Attend& how : hows) {
        const bool stock = std::string_view(kernels) == "mlx";
        const Layer coded =
            layer_of({stock ? "quantized" : "paged", plain_kv(bits), how.window}, how, kernels);
        const Layer plain =
            layer_of({stock ? "full" : "paged", plain_kv(), how.window}, how, kernels);
        const auto stored = [&](const mx::array& x) {
          const auto p = mx::quantize(x, 32, bits);
          return mx::dequantize(p[0], p[1], p[2], 32, bits);
        };
        auto cache = coded.make(), full = plain.make();
        cache->open(0);
        full->open(0);
        for (const auto& [from, to] : {std::pair{0, 40}, {40, 41}, {41, 50}, {50, 51}}) {
          const ops::RowSlice row{0, 0, to - from, from};
          const mx::array want =
              full->attend({rows_of(plain.q, from, to), stored(rows_of(plain.k, from, to)),
                            stored(rows_of(plain.v, from, to)), std::nullopt},
                           std::span(&row, 1), how);
          settle(*full, want);
          EXPECT_LT(distance(coded.feed(*cache, 0, from, to), want), kNear)
              << kernels << ' ' << bits << " bits, window " << how.window << ", cap " << how.softcap
              << " at " << from;
        }
      }
}

// Case 6: a step whose last token just sees the first one, and one longer, from every offset around
// the window; so also where causal gives way to an array.
TEST(Window, OneStepAroundItsEdge) {
  constexpr int kWindow = 24;
  const ops::Attend how{0.25f, kWindow};
  for (const char* kernels : {"mlx", "tenon"}) {
    const bool stock = std::string_view(kernels) == "mlx";
    const Layer kept = layer_of({stock ? "rotating" : "paged", plain_kv(), kWindow}, how, kernels);
    const Layer all = layer_of({stock ? "full" : "paged", plain_kv()}, how, kernels);
    for (int offset : {0, 1, 12, kWindow - 2, kWindow - 1, kWindow, kWindow + 1, 5 * kWindow})
      for (int num : {1, 2, 12, 13, kWindow - 1, kWindow, kWindow + 1}) {
        auto ring = kept.make(), whole = all.make();
        ring->open(0);
        whole->open(0);
        kept.advance_to(*ring, 0, offset, 1);
        all.advance_to(*whole, 0, offset, 50);
        for (int at : {offset, offset + num})
          EXPECT_LT(distance(kept.feed(*ring, 0, at, at + num), all.feed(*whole, 0, at, at + num)),
                    kNear)
              << kernels << ' ' << offset << " + " << num << " at " << at;
      }
  }
}

// Case 5: what a row says far behind its window follows from the last tokens alone. A ring holds
// them in another order than a row that brings them at once, so stock sums may differ by a last
// bit.
TEST(Window, LastTokensAloneSayTheSame) {
  constexpr int kWindow = 24, kLen = 7 * kWindow + 5;
  const ops::Attend how{0.25f, kWindow};
  for (const char* kernels : {"mlx", "tenon"}) {
    const bool stock = std::string_view(kernels) == "mlx";
    const Layer layer = layer_of({stock ? "rotating" : "paged", plain_kv(), kWindow}, how, kernels);
    auto slow = layer.make(), fresh = layer.make();
    slow->open(0);
    fresh->open(0);
    layer.advance_to(*slow, 0, kLen - 1, 1);
    const mx::array last = layer.feed(*slow, 0, kLen - 1, kLen);
    const mx::array again = bring(layer, *fresh, {{0, kLen - kWindow, kWindow}});
    EXPECT_LT(distance(last, rows_of(again, kWindow - 1, kWindow)), kNear) << kernels;
    // One token fewer is not enough.
    auto less = layer.make();
    less->open(0);
    const mx::array wrong = bring(layer, *less, {{0, kLen - kWindow + 1, kWindow - 1}});
    EXPECT_GT(distance(last, rows_of(wrong, kWindow - 2, kWindow - 1)), 100 * kNear) << kernels;
  }
}

// Case 8: the key says window and codes at once, and layers of one model have keys of their own.
TEST(Signatures, LayersAreComparedEachForItself) {
  const auto paged = [](int bits, int window) {
    return layer_of({"paged", plain_kv(bits), window}, {0.25f, window}, "tenon")
        .make()
        ->signature();
  };
  EXPECT_EQ(paged(8, 24), "kv:rotating-quant:8:32");
  EXPECT_EQ(paged(4, 24), "kv:rotating-quant:4:32");

  const Layer layers[] = {layer_of({"full", plain_kv()}), layer_of({"quantized", plain_kv(4)}),
                          layer_of({"quantized", plain_kv(8)})};
  std::vector<LayerPlan> plans;
  for (const Layer& layer : layers) plans.push_back(layer.variant.plan);
  CacheSet set = *CacheSet::make(plans, *layers[0].kernels);
  set.open(0);
  set.open(1);
  for (int i = 0; i < 3; ++i) layers[i].feed(set.layer(i), 0, 0, 20);
  const std::vector<Snapshot> good = set.save(0);
  const char* names[] = {"kv:plain", "kv:quant:4:32", "kv:quant:8:32"};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(good[i].signature, names[i]);
  for (int i = 0; i < 2; ++i) {
    std::vector<Snapshot> swapped = good;
    std::swap(swapped[i], swapped[i + 1]);
    const Status loaded = set.load(1, swapped);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, Code::invalid);
    for (const char* name : {names[i], names[i + 1]})
      EXPECT_NE(loaded.error().message.find(name), std::string::npos) << loaded.error().message;
    EXPECT_EQ(set.len(1), 0);
  }
  EXPECT_TRUE(set.load(1, good).ok());
}

// Case 9: at 16 KiB more or less than its source mx::contiguous would share, and at 1 GiB.
TEST(TrueCopy, SharesNothingAroundTheThresholdAndAtAGibibyte) {
  for (int num : {1, 4095, 4096, 4097, 16384, 16385}) {
    const mx::array source = mx::astype(mx::arange(num + 3), mx::int32);
    const mx::array part = mx::slice(source, {1}, {num + 1});
    const mx::array copy = true_copy(part);
    mx::eval(source, part, copy);
    const auto* begin = source.data<int32_t>();
    const auto* at = copy.data<int32_t>();
    EXPECT_TRUE(at + num <= begin || at >= begin + num + 3) << num;
    EXPECT_TRUE(same_bits(copy, mx::arange(1, num + 1)));
  }
  const uint64_t before = mx::get_active_memory();
  std::optional<mx::array> source = mx::full({1 << 10, 1 << 20}, 7, mx::uint8);
  const mx::array copy = true_copy(*source);
  mx::eval(*source, copy);
  EXPECT_NE(source->data<void>(), copy.data<void>());
  EXPECT_TRUE(mx::all(mx::equal(copy, *source)).item<bool>());
  source.reset();
  EXPECT_LE(mx::get_active_memory(), before + (1 << 30) + (1 << 20));
}

}  // namespace
}  // namespace tenon::cache

// What single cache kinds promise beyond the contract, and the helpers below them.
#include <gtest/gtest.h>

#include <functional>

#include "cache/stock_attention.h"
#include "cache/test_rows.h"

namespace tenon::cache {
namespace {

Layer layer_of(LayerPlan plan, ops::Attend how = {0.25f}, std::string kernels = "mlx") {
  return Layer(Variant{"", std::move(kernels), std::move(plan), how});
}

std::vector<std::vector<bool>> table_of(const mx::array& mask) {
  const mx::array bytes = mx::contiguous(mx::astype(mask, mx::uint8));
  mx::eval(bytes);
  std::vector<std::vector<bool>> rows(bytes.shape(0));
  for (int i = 0; i < bytes.shape(0); ++i)
    for (int j = 0; j < bytes.shape(1); ++j)
      rows[i].push_back(bytes.data<uint8_t>()[i * bytes.shape(1) + j] != 0);
  return rows;
}

TEST(TrueCopy, SharesNothingAtAnySize) {
  for (int n : {1, 3, 4096, 1 << 22}) {
    const mx::array x = random({n}, 1);
    const mx::array copy = true_copy(x);
    mx::eval(x, copy);
    EXPECT_NE(x.data<void>(), copy.data<void>()) << n;
    EXPECT_TRUE(same_bits(x, copy));
  }
}

TEST(TrueCopy, KeepsEveryBit) {
  const std::vector<uint32_t> odd = {0x80000000, 0x7fc12345, 0xffc00001, 0x7f800000, 1};
  const mx::array bits(odd.begin(), {1, 5}, mx::uint32);
  EXPECT_TRUE(same_bits(true_copy(bits), bits));
  EXPECT_TRUE(same_bits(mx::view(true_copy(mx::view(bits, mx::float32)), mx::uint32), bits));
  const mx::array half = mx::view(bits, mx::bfloat16);
  EXPECT_TRUE(same_bits(true_copy(half), half));
}

TEST(TrueCopy, LetsItsSourceGo) {
  const uint64_t before = mx::get_active_memory();
  std::optional<mx::array> x = random({1 << 16, 64}, 1);
  const mx::array copy = true_copy(*x, 100, 101);
  mx::eval(*x, copy);
  x.reset();
  EXPECT_LT(mx::get_active_memory(), before + 4096);
}

TEST(Masks, OfACacheThatHoldsAll) {
  EXPECT_EQ(full_mask(1, 7, {1.0f}).mode, "");
  EXPECT_EQ(full_mask(2, 7, {1.0f}).mode, "causal");
  EXPECT_EQ(full_mask(1, 7, {1.0f, 0, 9.0f}).mode, "");
  EXPECT_EQ(table_of(*full_mask(2, 1, {1.0f, 0, 9.0f}).seen),
            (std::vector<std::vector<bool>>{{true, true, false}, {true, true, true}}));
  // With a window it is an array even for one token, as mlx-lm's is.
  EXPECT_EQ(table_of(*full_mask(1, 3, {1.0f, 2}).seen),
            (std::vector<std::vector<bool>>{{false, false, true, true}}));
  EXPECT_EQ(
      table_of(*full_mask(2, 2, {1.0f, 2}).seen),
      (std::vector<std::vector<bool>>{{false, true, true, false}, {false, false, true, true}}));
}

TEST(Signatures, NameTheLayout) {
  const auto signature = [](LayerPlan plan, std::string kernels = "mlx") {
    return layer_of(std::move(plan), {0.25f}, std::move(kernels)).make()->signature();
  };
  EXPECT_EQ(signature({"full", plain_kv()}), "kv:plain");
  EXPECT_EQ(signature({"quantized", plain_kv(4)}), "kv:quant:4:32");
  EXPECT_EQ(signature({"quantized", plain_kv(8)}), "kv:quant:8:32");
  EXPECT_EQ(signature({"rotating", plain_kv(), 24}), "kv:rotating-plain");
  EXPECT_EQ(signature({"recurrent", plain_kv(), 0, kDelta}), "ssm");
  EXPECT_EQ(signature({"paged", plain_kv()}, "tenon"), "kv:plain");
  EXPECT_EQ(signature({"paged", plain_kv(8)}, "tenon"), "kv:quant:8:32");
  EXPECT_EQ(signature({"paged", plain_kv(), 24}, "tenon"), "kv:rotating-plain");
}

TEST(Attention, TakesTheKindThatFitsThePlan) {
  const auto signature = [](ops::KvShape kv, int window) {
    return layer_of({"attention", kv, window}).make()->signature();
  };
  EXPECT_EQ(signature(plain_kv(), 0), "kv:plain");
  EXPECT_EQ(signature(plain_kv(), 24), "kv:rotating-plain");
  EXPECT_EQ(signature(plain_kv(4), 0), "kv:quant:4:32");
}

// Capacities are mlx-lm's: a slab of 256 at a time, and what was garbage is cut off before.
TEST(Full, GrowsBySlabs) {
  const Layer layer = layer_of({"full", plain_kv()});
  auto cache = layer.make();
  cache->open(0);
  const uint64_t token = 2 * kKv * kDim * sizeof(float);
  int at = 0;
  for (const auto& [num, capacity] : {std::pair{255, 256}, {1, 256}, {1, 512}, {600, 1025}}) {
    layer.feed(*cache, 0, at, at + num);
    at += num;
    EXPECT_EQ(cache->bytes() / token, static_cast<uint64_t>(capacity)) << at;
  }
}

// What somebody else holds is copied, not written into, and the copy is counted; a view (case 30)
// holds the buffer as well as its array does.
TEST(Arrays, HeldArraysStayWhole) {
  const auto itself = [](const mx::array& x) { return x; };
  // Every place of one head, so that the one written next is among them.
  const auto one_head = [](const mx::array& x) {
    return mx::slice(x, {0, 1, 0, 0}, {1, 2, x.shape(2), x.shape(3)});
  };
  const LayerPlan plans[] = {
      {"full", plain_kv()}, {"quantized", plain_kv(8)}, {"rotating", plain_kv(), 24}};
  for (const LayerPlan& plan : plans)
    for (const auto& view : std::vector<std::function<mx::array(mx::array)>>{itself, one_head}) {
      const Layer layer = layer_of(plan);
      auto cache = layer.make(), other = layer.make();
      for (LayerCache* c : {cache.get(), other.get()}) {
        c->open(0);
        layer.feed(*c, 0, 0, 20);
        layer.advance_to(*c, 0, 30, 1);
      }
      EXPECT_EQ(cache->copies(), 0u);
      {
        std::vector<mx::array> held, copies;
        {
          std::vector<mx::array> whole;
          cache->collect(whole);
          for (const mx::array& x : whole) held.push_back(view(x));
          mx::eval(held);
        }
        for (const mx::array& x : held) copies.push_back(true_copy(x));
        mx::eval(copies);
        EXPECT_TRUE(same_bits(layer.feed(*cache, 0, 30, 31), layer.feed(*other, 0, 30, 31)));
        for (size_t i = 0; i < held.size(); ++i) EXPECT_TRUE(same_bits(held[i], copies[i])) << i;
        EXPECT_EQ(cache->copies(), held.size()) << plan.kind;
      }
      const uint64_t copies = cache->copies();
      EXPECT_TRUE(same_bits(layer.feed(*cache, 0, 31, 32), layer.feed(*other, 0, 31, 32)));
      EXPECT_EQ(cache->copies(), copies);
    }
}

TEST(Quantized, AppendingIsQuantizing) {
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64}) {
      const Layer layer = layer_of({"quantized", {1, 64, 128, mx::float32, bits, group}});
      auto cache = layer.make();
      cache->open(0);
      const mx::array q = random({20, 2, 64}, 1), k = random({20, 1, 64}, 2);
      const mx::array v = random({20, 1, 128}, 3);
      const auto append = [&](int from, int to) {
        const ops::RowSlice row{0, 0, to - from, from};
        settle(*cache, cache->attend({rows_of(q, from, to), rows_of(k, from, to),
                                      rows_of(v, from, to), std::nullopt},
                                     std::span(&row, 1), {0.25f}));
      };
      append(0, 9);
      append(9, 15);
      cache->rollback(0, 11);
      append(11, 20);
      const Snapshot s = cache->save(0);
      ASSERT_EQ(s.parts.size(), 6u);
      for (int i = 0; i < 2; ++i) {
        const auto whole = mx::quantize(mx::squeeze(i == 0 ? k : v, 1), group, bits);
        for (int j = 0; j < 3; ++j)
          EXPECT_EQ(s.parts[3 * i + j].bytes, to_part(whole[j]).bytes) << bits << ' ' << j;
      }
    }
}

TEST(Quantized, AttendsToWhatItStored) {
  for (int bits : {4, 8}) {
    const Layer layer = layer_of({"quantized", plain_kv(bits)}),
                plain = layer_of({"full", plain_kv()});
    const auto stored = [&](const mx::array& x) {
      const auto p = mx::quantize(x, 32, bits);
      return mx::dequantize(p[0], p[1], p[2], 32, bits);
    };
    auto cache = layer.make(), full = plain.make();
    cache->open(0);
    full->open(0);
    for (const auto& [from, to] : {std::pair{0, 40}, {40, 41}, {41, 50}}) {
      const ops::RowSlice row{0, 0, to - from, from};
      const mx::array want =
          full->attend({rows_of(layer.q, from, to), stored(rows_of(layer.k, from, to)),
                        stored(rows_of(layer.v, from, to)), std::nullopt},
                       std::span(&row, 1), {0.25f});
      EXPECT_LT(distance(layer.feed(*cache, 0, from, to), want), 1e-5f) << bits << " at " << from;
    }
  }
}

TEST(Quantized, RefusesWidthsThatAreNotWholeGroups) {
  const auto kernels = *ops::make_kernels({.name = "mlx"});
  const auto refused = [&](ops::KvShape kv) {
    const auto set = CacheSet::make({{"full", plain_kv()}, {"quantized", kv}}, *kernels);
    EXPECT_FALSE(set.ok());
    return set.ok() ? std::string() : set.error().message;
  };
  const std::string message = refused({2, 80, 80, mx::float32, 4, 64});
  for (const char* word : {"layer 1", "80", "64", "4 bits"})
    EXPECT_NE(message.find(word), std::string::npos) << message;
  refused({2, 64, 48, mx::float32, 8, 32});
  EXPECT_NE(refused({2, 64, 64, mx::float32, 7, 64}).find("7 bits"), std::string::npos);
  refused({2, 64, 64, mx::float32, 4, 16});
  refused({2, 64, 64, mx::float32, 0, 64});
}

// Long steps that end around the window and past it; the numbers are those of a row that came one
// by one, up to the order in which a ring's places are summed.
TEST(Rotating, StepsAroundTheWindow) {
  constexpr int kWindow = 24;
  const Layer layer = layer_of({"rotating", plain_kv(), kWindow}, {0.25f, kWindow});
  for (int first : {kWindow - 1, kWindow, kWindow + 1, 3 * kWindow})
    for (int second : {1, 2, kWindow - 1, kWindow, kWindow + 1}) {
      auto cut = layer.make(), slow = layer.make();
      cut->open(0);
      slow->open(0);
      layer.feed(*cut, 0, 0, first);
      layer.advance_to(*slow, 0, first, 1);
      int at = first;
      for (int num : {second, 1, 2}) {
        const mx::array got = layer.feed(*cut, 0, at, at + num);
        for (int i = 0; i < num; ++i)
          EXPECT_LT(distance(rows_of(got, i, i + 1), layer.feed(*slow, 0, at + i, at + i + 1)),
                    1e-5f)
              << first << " + " << second << " at " << at + i;
        at += num;
      }
    }
}

TEST(Rotating, GoesBackWhileAllIsThere) {
  constexpr int kWindow = 24;
  const Layer layer = layer_of({"rotating", plain_kv(), kWindow}, {0.25f, kWindow});
  auto cache = layer.make();
  cache->open(0);
  layer.advance_to(*cache, 0, kWindow, 1);
  cache->rollback(0, kWindow - 5);  // every place is still the first token in it
  layer.advance_to(*cache, 0, kWindow + 1, 1);
  EXPECT_THROW(cache->rollback(0, kWindow), std::logic_error);
  EXPECT_EQ(cache->len(0), kWindow + 1);
  cache->rollback(0, 0);
  EXPECT_EQ(cache->bytes(), 0u);
}

// What a mark keeps goes with the rollback that lets go of it, or with the next mark.
TEST(Rotating, KeepsOneRound) {
  constexpr int kWindow = 24;
  const Layer layer = layer_of({"rotating", plain_kv(), kWindow}, {0.25f, kWindow});
  auto cache = layer.make();
  cache->open(0);
  layer.advance_to(*cache, 0, 2 * kWindow, 1);
  const uint64_t plain = cache->bytes();
  cache->mark(0);
  layer.feed(*cache, 0, 48, 52);
  EXPECT_GT(cache->bytes(), 2 * plain);
  layer.feed(*cache, 0, 52, 53);
  EXPECT_THROW(cache->rollback(0, 52), std::logic_error);
  cache->rollback(0, 53);
  layer.feed(*cache, 0, 53, 54);
  EXPECT_EQ(cache->bytes(), plain);
  EXPECT_THROW(cache->rollback(0, 48), std::logic_error);
  cache->rollback(0, 54);
  layer.feed(*cache, 0, 54, 55);
  cache->mark(0);
  layer.feed(*cache, 0, 55, 57);
  cache->mark(0);
  EXPECT_THROW(cache->rollback(0, 55), std::logic_error);
  EXPECT_EQ(cache->len(0), 57);
}

TEST(Rotating, AWindowNarrowerThanTheRing) {
  const Layer layer = layer_of({"rotating", plain_kv(), 24}, {0.25f, 7});
  const Layer full = layer_of({"full", plain_kv(), 7}, {0.25f, 7});
  auto ring = layer.make(), all = full.make();
  ring->open(0);
  all->open(0);
  int at = 0;
  for (int num : {1, 5, 1, 1, 20, 1, 1, 3, 1, 1, 1, 30, 1}) {
    EXPECT_LT(distance(layer.feed(*ring, 0, at, at + num), full.feed(*all, 0, at, at + num)),
              1e-5f);
    at += num;
  }
  const Layer wide = layer_of({"rotating", plain_kv(), 24}, {0.25f, 25});
  EXPECT_THROW(wide.feed(*ring, 0, at, at + 1), std::logic_error);
}

TEST(Rotating, RefusesCodes) {
  const auto kernels = *ops::make_kernels({.name = "mlx"});
  EXPECT_EQ(make_layer_cache({"attention", plain_kv(4), 24}, *kernels).error().code,
            Code::unsupported);
}

// Pages that nobody sees any more are given back, and a rollback of the last step never needs one.
TEST(Paged, AWindowBoundsTheMemory) {
  constexpr int kWindow = 70;
  const Layer layer = layer_of({"paged", plain_kv(), kWindow}, {0.25f, kWindow}, "tenon");
  auto cache = layer.make(), fresh = layer.make();
  cache->open(0);
  const double page = cache->bytes_per_token() * 64;
  for (int at = 0; at < 1000; ++at) {
    layer.feed(*cache, 0, at, at + 1);
    ASSERT_LE(static_cast<double>(cache->bytes()), 3 * page) << at;
  }
  layer.feed(*cache, 0, 1000, 1300);
  cache->rollback(0, 1000);
  EXPECT_EQ(cache->len(0), 1000);
  try {
    cache->rollback(0, 600);
    FAIL();
  } catch (const std::logic_error& e) {
    EXPECT_NE(std::string(e.what()).find("0, and"), std::string::npos) << e.what();
  }
  EXPECT_EQ(cache->save(0).parts.size(), 2u);  // of 16 pages
  cache->rollback(0, 0);
  EXPECT_EQ(cache->bytes(), 0u);
  fresh->open(0);
  EXPECT_TRUE(same_bits(layer.feed(*cache, 0, 0, 9), layer.feed(*fresh, 0, 0, 9)));
}

class Recurrent : public ::testing::TestWithParam<std::string> {
 protected:
  const Layer layer = layer_of({"recurrent", plain_kv(), 0, kDelta}, {}, GetParam());
  std::vector<const void*> addresses(const LayerCache& cache) const {
    std::vector<mx::array> state;
    cache.collect(state);
    mx::eval(state);
    std::vector<const void*> found;
    for (const mx::array& x : state) found.push_back(x.data<void>());
    return found;
  }
};

TEST_P(Recurrent, RollbackToTheMarkRestoresTheHandles) {
  auto cache = layer.make();
  cache->open(0);
  layer.feed(*cache, 0, 0, 6);
  const auto before = addresses(*cache);
  cache->mark(0);
  layer.feed(*cache, 0, 6, 10);
  EXPECT_NE(addresses(*cache), before);
  cache->rollback(0, 6);
  EXPECT_EQ(addresses(*cache), before);

  cache->open(1);
  cache->mark(1);
  layer.feed(*cache, 1, 0, 4);
  cache->rollback(1, 0);
  EXPECT_EQ(cache->len(1), 0);
  EXPECT_EQ(addresses(*cache), before);  // the second row has no state again

  // Keeping all is keeping the state as it is.
  cache->mark(0);
  layer.feed(*cache, 0, 6, 10);
  auto kept = addresses(*cache);
  cache->rollback(0, 10);
  kept.resize(2);  // without what the round recorded
  EXPECT_EQ(addresses(*cache), kept);
}

TEST_P(Recurrent, RefusesOtherLengths) {
  auto cache = layer.make();
  cache->open(0);
  layer.feed(*cache, 0, 0, 6);
  const auto refused = [&](int len, const char* words) {
    const auto before = addresses(*cache);
    try {
      cache->rollback(0, len);
      ADD_FAILURE() << "went back to " << len;
    } catch (const std::logic_error& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
    EXPECT_EQ(addresses(*cache), before);
  };
  refused(3, "to 3 of 6 tokens: possible is 0: no marked step");  // no round
  cache->mark(0);
  refused(3, "no marked step");  // its step has not come
  layer.feed(*cache, 0, 6, 10);
  refused(5, "6 (the mark) and up, or 0");
  refused(11, "to 11 of 10");
  refused(-1, "to -1 of 10");
  cache->rollback(0, 8);
  refused(7, "no marked step");  // the round is over

  // Of several steps only their beginning can come back; a mark restores nothing.
  cache->mark(0);
  layer.feed(*cache, 0, 8, 10);
  layer.feed(*cache, 0, 10, 11);
  refused(9, "possible is 8 (the mark), or 0");
  cache->mark(0);
  layer.feed(*cache, 0, 11, 14);
  cache->mark(0);
  EXPECT_EQ(cache->len(0), 14);
  refused(12, "no marked step");
}

// A state, and what a round keeps, hold no buffer of the step that made them.
TEST_P(Recurrent, PinsNothing) {
  auto cache = layer.make();
  cache->open(0);
  cache->open(1);
  const uint64_t before = mx::get_active_memory();
  cache->mark(1);
  layer.step(*cache, {{0, 0, 300, 0}, {1, 300, 2, 0}});
  const uint64_t recorded = 2 * (kDelta.conv_dim() + 2 * kDelta.num_v_heads) * sizeof(float);
  EXPECT_EQ(cache->bytes(), 2 * cache->row_bytes() + recorded);
  EXPECT_LE(mx::get_active_memory(), before + cache->bytes() + 8192);
}

INSTANTIATE_TEST_SUITE_P(Families, Recurrent, ::testing::Values("mlx", "tenon"),
                         [](const auto& family) -> std::string {
                           return family.param == "mlx" ? "stock" : family.param;
                         });

}  // namespace
}  // namespace tenon::cache

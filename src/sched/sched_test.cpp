// The scheduler under a seeded simulator: no MLX, no clock.
#include "sched/sched.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace tenon::sched {
namespace {

TEST(Ledger, RefusesPastTheLimitAndGivesBack) {
  Ledger ledger(100);
  EXPECT_TRUE(ledger.reserve(60));
  EXPECT_FALSE(ledger.reserve(41));
  EXPECT_TRUE(ledger.reserve(40));
  ledger.release(60);
  EXPECT_EQ(ledger.used(), 40u);
  EXPECT_FALSE(ledger.reserve(UINT64_MAX));  // no wrap-around
}

TEST(Scheduler, ShortPromptIsNotStuckBehindALongOne) {
  Ledger ledger(1 << 20);
  Scheduler s({4, 8, 1.0}, &ledger);
  ASSERT_TRUE(s.admit({1, 1000, 10}).ok());
  ASSERT_TRUE(s.admit({2, 5, 10}).ok());
  const auto rows = s.plan(64);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].count, 5);  // all of it, in the first step
  EXPECT_EQ(rows[0].count, 59);
}

TEST(Scheduler, EveryRunningRowGetsATokenWhateverTheBudget) {
  Ledger ledger(1 << 20);
  Scheduler s({4, 8, 1.0}, &ledger);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(s.admit({id, 100, 10}).ok());
  for (const PlannedRow& row : s.plan(1)) EXPECT_EQ(row.count, 1);
}

TEST(Scheduler, QueueIsBoundedAndTooLargeIsRefusedAtOnce) {
  Ledger ledger(100);
  Scheduler s({1, 1, 1.0}, &ledger);
  EXPECT_EQ(s.admit({9, 90, 11}).error().code, Code::too_large);
  EXPECT_TRUE(s.admit({1, 10, 10}).ok());
  EXPECT_TRUE(s.admit({2, 10, 10}).ok());
  EXPECT_EQ(s.admit({3, 10, 10}).error().code, Code::overloaded);
}

TEST(Scheduler, MemoryMakesARequestWaitNotFail) {
  Ledger ledger(100);
  Scheduler s({2, 8, 1.0}, &ledger);
  ASSERT_TRUE(s.admit({1, 30, 30}).ok());
  ASSERT_TRUE(s.admit({2, 30, 30}).ok());
  EXPECT_EQ(s.plan(64).size(), 1u);
  EXPECT_EQ(s.num_waiting(), 1);
  s.commit({{1, 30, 1, true}});
  EXPECT_EQ(s.plan(64).size(), 1u);
  EXPECT_EQ(s.num_waiting(), 0);
}

TEST(Scheduler, RemoveSaysWhichCachesToClose) {
  Ledger ledger(1000);
  Scheduler s({1, 8, 1.0}, &ledger);
  ASSERT_TRUE(s.admit({1, 3, 3}).ok());
  ASSERT_TRUE(s.admit({2, 3, 3}).ok());
  const auto rows = s.plan(8);
  EXPECT_EQ(s.remove(2), std::nullopt);          // still waiting
  EXPECT_EQ(s.remove(1), std::optional<int>(rows[0].slot));
  EXPECT_EQ(s.remove(1), std::nullopt);          // gone already
  EXPECT_EQ(ledger.used(), 0u);
  EXPECT_TRUE(s.idle());
}

// Random arrivals, lengths, budgets and departures: every sequence computes each position once and
// in order, slots are never shared, and nothing is left reserved.
TEST(Scheduler, SimulatedTrafficComputesEveryTokenOnce) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 rng(seed);
    const auto uniform = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(rng);
    };
    Ledger ledger(2000);
    Scheduler s({uniform(1, 6), uniform(0, 5), 1.0}, &ledger);
    struct Live {
      int prompt, max, computed = 0, known, slot = -1;
    };
    std::map<uint64_t, Live> live;
    uint64_t next_id = 1;
    for (int step = 0; step < 300 || !s.idle(); ++step) {
      ASSERT_LT(step, 20000);
      if (step < 300 && uniform(0, 2) == 0) {
        const int prompt = uniform(1, 200), max = uniform(1, 20);
        if (s.admit({next_id, prompt, max}).ok()) live[next_id] = {prompt, max, 0, prompt};
        ++next_id;
      }
      if (!live.empty() && uniform(0, 20) == 0) {
        const uint64_t id = live.begin()->first;
        s.remove(id);
        live.erase(id);
      }
      std::set<int> slots;
      std::vector<RowResult> results;
      for (const PlannedRow& row : s.plan(uniform(1, 64), uniform(0, 1) * 7)) {
        Live& l = live.at(row.id);
        EXPECT_TRUE(slots.insert(row.slot).second);
        EXPECT_EQ(row.opened, l.slot < 0);
        if (l.slot >= 0) {
          EXPECT_EQ(row.slot, l.slot);
        }
        l.slot = row.slot;
        ASSERT_EQ(row.computed, l.computed);
        ASSERT_GE(row.count, 1);
        l.computed += row.count;
        ASSERT_LE(l.computed, l.known);
        const int drawn = l.computed == l.known ? 1 : 0;
        l.known += drawn;
        const bool done = l.known - l.prompt >= l.max;
        results.push_back({row.id, l.computed, drawn, done});
        if (done) live.erase(row.id);
      }
      s.commit(results);
    }
    EXPECT_EQ(ledger.used(), 0u);
    EXPECT_TRUE(live.empty());
  }
}

}  // namespace
}  // namespace tenon::sched

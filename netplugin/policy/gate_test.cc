// The time window with times that the tests choose: period 100 ms, open for the first 30 ms from t = 1000 ms on.
#include "netplugin/policy/gate.h"

#include <gtest/gtest.h>

namespace weft::net {
namespace {

constexpr uint64_t kMs = 1'000'000;

abi::FlowPolicy Window(uint64_t period_ms, uint64_t offset_ms, uint64_t length_ms) {
  abi::FlowPolicy entry{};
  entry.window_period_ns = period_ms * kMs;
  entry.window_offset_ns = offset_ms * kMs;
  entry.window_length_ns = length_ms * kMs;
  return entry;
}

class GateTest : public ::testing::Test {
 protected:
  GateTest() { gate_.Set(Window(100, 1000, 30), 900 * kMs); }

  /// The first chunk of a burst after a long pause.
  bool Opens(uint64_t now_ms, uint64_t last_ms = 0) { return gate_.Opens(now_ms * kMs, last_ms * kMs); }
  uint64_t HeldMs() {
    uint64_t ns = 0;
    return gate_.TakeHeld(&ns) ? ns / kMs : 0;
  }

  Gate gate_;
};

TEST_F(GateTest, WithoutAPeriodThereIsNone) {
  EXPECT_TRUE(gate_.armed());
  gate_.Set(Window(0, 0, 0), 0);
  EXPECT_FALSE(gate_.armed());
}

TEST_F(GateTest, ABurstInsideTheWindowGoesAtOnce) {
  EXPECT_TRUE(Opens(1000));
  EXPECT_EQ(HeldMs(), 0u);
}

TEST_F(GateTest, AnEarlyBurstWaitsForTheNextOpening) {
  EXPECT_FALSE(Opens(1530));  // the window shut at this moment
  EXPECT_TRUE(gate_.holding());
  EXPECT_FALSE(Opens(1599));
  EXPECT_TRUE(Opens(1600));
  EXPECT_FALSE(gate_.holding());
  EXPECT_EQ(HeldMs(), 70u);
  EXPECT_EQ(HeldMs(), 0u) << "taken once";
}

TEST_F(GateTest, NothingIsHeldLongerThanAPeriodWhereverItBegins) {
  for (uint64_t start = 2000; start < 2100; ++start) {
    Gate gate;
    gate.Set(Window(100, 1000, 1), 0);
    uint64_t now = start;
    while (!gate.Opens(now * kMs, 0)) ++now;
    EXPECT_LE(now - start, 100u);
    EXPECT_EQ(now % 100, 0u) << "and leaves when the window opens";
  }
}

TEST_F(GateTest, OpeningsLieBeforeTheOffsetToo) {
  EXPECT_TRUE(Opens(710));
  EXPECT_FALSE(Opens(755));
  EXPECT_TRUE(Opens(800));
}

TEST_F(GateTest, APauseInsideAnIterationIsNoNewBurst) {
  EXPECT_TRUE(Opens(1020));
  EXPECT_TRUE(Opens(1060, 1026)) << "34 ms of pause, of the 70 in which the window is shut";
  EXPECT_FALSE(Opens(1096, 1060)) << "36 ms of pause";
}

TEST_F(GateTest, WhatWasLetThroughIsNotHeldBeforeItsBytesMove) {
  EXPECT_TRUE(Opens(1029));
  EXPECT_TRUE(Opens(1031)) << "the socket was full; the window has shut meanwhile";
}

TEST_F(GateTest, ALateBurstGoesOnAtItsOwnPace) {
  // Iterations of 110 ms: each begins 10 ms later in the window than the last.
  EXPECT_TRUE(Opens(1000));
  EXPECT_TRUE(Opens(1110, 1010));
  EXPECT_TRUE(Opens(1220, 1120));
  EXPECT_FALSE(Opens(1330, 1230)) << "until it counts as early";
  EXPECT_TRUE(Opens(1400, 1230));
}

TEST_F(GateTest, ANewWindowHoldsNoLongerThanAPeriodInAll) {
  EXPECT_FALSE(Opens(1040));
  gate_.Set(Window(100, 1095, 1), 1090 * kMs);
  EXPECT_TRUE(Opens(1095)) << "by the new window";
  EXPECT_FALSE(Opens(1200, 1095));
  gate_.Set(Window(100, 1000 + 285, 1), 1290 * kMs);
  EXPECT_FALSE(Opens(1299));
  EXPECT_TRUE(Opens(1300)) << "the new window opens at 1385, but the send has waited since 1200";
}

TEST_F(GateTest, WhatIsHeldGoesWhenTheWindowIsWithdrawnOrItsLeaseEnds) {
  EXPECT_FALSE(Opens(1040));
  gate_.Set(Window(0, 0, 0), 1050 * kMs);
  EXPECT_FALSE(gate_.holding());
  EXPECT_EQ(HeldMs(), 10u);
  gate_.Set(Window(100, 1000, 30), 1100 * kMs);
  EXPECT_FALSE(Opens(1240));
  gate_.Release(1245 * kMs);
  EXPECT_EQ(HeldMs(), 5u);
  EXPECT_TRUE(Opens(1250)) << "and is not held anew";
}

}  // namespace
}  // namespace weft::net

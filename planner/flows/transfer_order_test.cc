#include "planner/flows/transfer_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace weft::planner {
namespace {

const BitsPerSecond kPath(8);  // one byte per second

double WorstDelay(const std::vector<TransferNeed>& needs, const std::vector<int32_t>& rank) {
  const std::vector<Seconds> finish = ServeByRank(kPath, needs, rank);
  double worst = 0;
  for (size_t i = 0; i < needs.size(); ++i) {
    const Seconds needed = needs[i].ready + needs[i].bytes / kPath + needs[i].slack;
    worst = std::max(worst, (finish[i] - needed).count());
  }
  return worst;
}

// 10 bytes that may be 20 s late are ready first; 2 bytes that may not wait interrupt them at 3 s.
TEST(OrderTransfers, WhatIsNeededFirstInterrupts) {
  const std::vector<TransferNeed> needs{{1, Bytes(10), Seconds(0), Seconds(20)}, {2, Bytes(2), Seconds(3), Seconds(0)}};
  const std::vector<TransferTurn> turns = OrderTransfers(kPath, needs);
  EXPECT_EQ(turns[0].rank, 1);
  EXPECT_EQ(turns[1].rank, 0);
  EXPECT_NEAR(turns[1].finish.count(), 5, 1e-9);
  EXPECT_NEAR(turns[0].finish.count(), 12, 1e-9);
  EXPECT_EQ(turns[0].delay.count() + turns[1].delay.count(), 0);
  EXPECT_EQ(turns[1].weight, 64);
  EXPECT_EQ(turns[0].weight, 21) << "a third of the rate would do: 10 s of 30";
}

TEST(OrderTransfers, EqualNeedsGoByKey) {
  const std::vector<TransferTurn> turns = OrderTransfers(
      kPath, std::vector<TransferNeed>{{9, Bytes(4), Seconds(0), Seconds(1)}, {3, Bytes(4), Seconds(0), Seconds(1)}});
  EXPECT_EQ(turns[0].rank, 1);
  EXPECT_EQ(turns[1].rank, 0);
  EXPECT_NEAR(turns[0].delay.count(), 3, 1e-9);
}

TEST(OrderTransfers, NoOrderHasASmallerWorstDelay) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<TransferNeed> needs;
    for (uint64_t i = 0; i < 2 + seed % 5; ++i) {
      needs.push_back({i, Bytes(static_cast<int64_t>(1 + random() % 9)), Seconds(static_cast<double>(random() % 12)),
                       Seconds(static_cast<double>(random() % 10))});
    }
    double delay = 0;
    for (const TransferTurn& turn : OrderTransfers(kPath, needs)) delay = std::max(delay, turn.delay.count());
    std::vector<int32_t> rank(needs.size());
    std::iota(rank.begin(), rank.end(), 0);
    double least = 1e300;
    do least = std::min(least, WorstDelay(needs, rank));
    while (std::next_permutation(rank.begin(), rank.end()));
    EXPECT_NEAR(delay, least, 1e-9) << seed;
  }
}

}  // namespace
}  // namespace weft::planner

#include "planner/parallelism/pipeline_hops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/parallelism/variables.h"

namespace weft::planner::inline parallelism {
namespace {

int64_t RankOf(const Strategy& s, int64_t stage, int64_t replica, int64_t place) {
  const int64_t outer = s.rank_order == RankOrder::kTpCpPpDp ? replica * s.pp + stage : stage * s.dp + replica;
  return outer * s.tp * s.cp + place;
}

/// Message by message.
size_t MostLeft(const GroupNetwork& network, const Strategy& s, int64_t stage) {
  size_t most = 0;
  for (int64_t replica = 0; replica < s.dp; ++replica) {
    for (int64_t place = 0; place < s.tp * s.cp; ++place) {
      most = std::max(most, UnitsLeft(network, RankOf(s, stage, replica, place), RankOf(s, (stage + 1) % s.pp, replica, place)));
    }
  }
  return most;
}

class PipelineHops : public testing::Test {
 protected:
  /// Nodes of any size and up to two tiers above them; degrees that need not divide any of these.
  void Draw() {
    const auto upto = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random_); };
    network_ = {};
    network_.gpus_per_node = upto(9);
    network_.tiers = static_cast<size_t>(upto(3) - 1);
    int64_t gpus = network_.gpus_per_node;
    for (size_t t = 0; t < network_.tiers; ++t) network_.above[t].gpus = gpus *= 1 + upto(3);
    strategy_ = {};
    strategy_.tp = upto(4);
    strategy_.cp = upto(2);
    strategy_.dp = upto(12);
    strategy_.pp = 1 + upto(6);
    strategy_.rank_order = upto(2) == 1 ? RankOrder::kTpCpPpDp : RankOrder::kTpCpEpDpPp;
  }

  std::mt19937 random_{20261128};
  GroupNetwork network_;
  Strategy strategy_;
};

TEST_F(PipelineHops, AreThoseOfTheMessageThatLeavesMost) {
  int apart = 0;
  for (int round = 0; round < 3000; ++round) {
    Draw();
    size_t first = 0;
    for (int64_t stage = 0; stage < strategy_.pp; ++stage) {
      const size_t found = HopLeaves(network_, strategy_, stage), most = MostLeft(network_, strategy_, stage);
      ASSERT_GE(found, most) << DescribeStrategy(strategy_) << ", stage " << stage << ", nodes of " << network_.gpus_per_node;
      ASSERT_LE(LeastHopLeaves(network_, strategy_), found) << DescribeStrategy(strategy_) << ", stage " << stage;
      if (stage == 0) first = found;
      apart += found != first ? 1 : 0;
    }
  }
  EXPECT_GT(apart, 300) << "boundaries of one pipeline that cross different things";
}

// Where blocks of a stage fill units or units hold blocks, the answer is exact; else a block itself lies over a border, and its ends may
// be on different sides of it though no message crosses it.
TEST_F(PipelineHops, AreExactWhereBlocksAndUnitsFit) {
  int compared = 0;
  while (compared < 3000) {
    Draw();
    const int64_t stride = HopStride(strategy_);
    const auto fits = [&](int64_t gpus) { return gpus % stride == 0 || stride % gpus == 0; };
    bool all = fits(network_.gpus_per_node);
    for (size_t t = 0; t < network_.tiers; ++t) all &= fits(network_.above[t].gpus);
    if (!all) continue;
    ++compared;
    for (int64_t stage = 0; stage < strategy_.pp; ++stage) {
      ASSERT_EQ(HopLeaves(network_, strategy_, stage), MostLeft(network_, strategy_, stage))
          << DescribeStrategy(strategy_) << ", stage " << stage << ", nodes of " << network_.gpus_per_node;
    }
  }
}

}  // namespace
}  // namespace weft::planner::inline parallelism

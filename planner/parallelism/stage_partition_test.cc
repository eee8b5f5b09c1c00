#include "planner/parallelism/stage_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace weft::planner::inline parallelism {
namespace {

using testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(StagePartition, AHeavyHeadTakesLayersFromTheLastStage) {
  // 16 layers of 1 s, the head costs 2 s more: 4, 5, 4, 3 or the like; the slowest has 5.
  const StagePartition cut = PartitionStages({16, 4, 8}, [](int64_t stage, int64_t, int64_t count) {
    return static_cast<double>(count) + (stage == 3 ? 2 : 0);
  });
  ASSERT_TRUE(cut.feasible);
  EXPECT_DOUBLE_EQ(cut.slowest, 5);
  EXPECT_DOUBLE_EQ(cut.sum, 18);
  EXPECT_DOUBLE_EQ(cut.iteration, 18 + 7 * 5);
  EXPECT_LE(cut.layers[3], 3);
}

TEST(StagePartition, EvenStagesWhereNothingSaysOtherwise) {
  const StagePartition cut =
      PartitionStages({96, 8, 64}, [](int64_t, int64_t, int64_t count) { return static_cast<double>(count); });
  EXPECT_THAT(cut.layers, ElementsAre(12, 12, 12, 12, 12, 12, 12, 12));
}

TEST(StagePartition, WhatDoesNotFitIsNotCut) {
  // At most 3 layers fit the first stage.
  const auto time = [](int64_t stage, int64_t, int64_t count) {
    return stage == 0 && count > 3 ? kInfinity : static_cast<double>(count);
  };
  EXPECT_EQ(PartitionStages({10, 2, 4}, time).layers.at(0), 3);
  EXPECT_FALSE(PartitionStages({10, 1, 4}, time).feasible);
  EXPECT_FALSE(PartitionStages({2, 3, 4}, time).feasible);
}

// Against trying all cuts, with times that depend on stage, place and count in no orderly way.
TEST(StagePartition, EqualsAllCutsOnRandomCases) {
  std::mt19937 random(31);
  for (int round = 0; round < 400; ++round) {
    const int64_t stages = 1 + static_cast<int64_t>(random() % 4), layers = stages + static_cast<int64_t>(random() % 6);
    const int64_t micro_batches = 1 + static_cast<int64_t>(random() % 9);
    std::vector<double> weight, extra;
    for (int64_t i = 0; i < layers; ++i) weight.push_back(static_cast<double>(1 + random() % 9));
    for (int64_t i = 0; i < stages; ++i) extra.push_back(static_cast<double>(random() % 5));
    const int64_t most = 1 + static_cast<int64_t>(random() % 6);
    const auto time = [&](int64_t stage, int64_t first, int64_t count) {
      if (stage % 2 == 1 && count > most) return kInfinity;
      double sum = extra[static_cast<size_t>(stage)] * static_cast<double>(count % 3);
      for (int64_t i = first; i < first + count; ++i) sum += weight[static_cast<size_t>(i)];
      return sum;
    };
    double best = kInfinity;
    const std::function<void(int64_t, int64_t, double, double)> all = [&](int64_t stage, int64_t first, double sum,
                                                                          double slowest) {
      if (stage == stages) {
        if (first == layers) best = std::min(best, sum + static_cast<double>(micro_batches - 1) * slowest);
        return;
      }
      for (int64_t count = 1; first + count <= layers; ++count) {
        const double own = time(stage, first, count);
        if (own < kInfinity) all(stage + 1, first + count, sum + own, std::max(slowest, own));
      }
    };
    all(0, 0, 0, 0);
    const StagePartition cut = PartitionStages({layers, stages, micro_batches}, time);
    ASSERT_EQ(cut.feasible, best < kInfinity) << round;
    if (!cut.feasible) continue;
    ASSERT_NEAR(cut.iteration, best, 1e-9) << round;
  }
}

}  // namespace
}  // namespace weft::planner::parallelism

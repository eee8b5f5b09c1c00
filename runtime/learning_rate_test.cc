#include "runtime/learning_rate.h"

#include <gtest/gtest.h>

namespace weft::runtime {
namespace {

// 4 steps up to 8, a cosine from step 4 to step 12, half way at step 8: 2 + (8 - 2) / 2 = 5.
TEST(LearningRate, RisesLinearlyAndFallsAsACosine) {
  const LearningRate rate{.peak = 8, .warm_up = 4, .decay = 12, .least = 2};
  EXPECT_DOUBLE_EQ(LearningRateAt(rate, 0), 2);
  EXPECT_DOUBLE_EQ(LearningRateAt(rate, 3), 8);
  EXPECT_DOUBLE_EQ(LearningRateAt(rate, 4), 8);
  EXPECT_DOUBLE_EQ(LearningRateAt(rate, 8), 5);
  EXPECT_DOUBLE_EQ(LearningRateAt(rate, 12), 2);
  EXPECT_DOUBLE_EQ(LearningRateAt(rate, 99), 2);
}

TEST(LearningRate, IsConstantUnlessAskedOtherwise) {
  EXPECT_DOUBLE_EQ(LearningRateAt({.peak = 3}, 0), 3);
  EXPECT_DOUBLE_EQ(LearningRateAt({.peak = 3}, 1'000'000), 3);
}

}  // namespace
}  // namespace weft::runtime

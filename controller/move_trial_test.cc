#include "controller/move_trial.h"

#include <gtest/gtest.h>

namespace weft::controller {
namespace {

TEST(MoveTrial, JudgesByTheMedianOfThreeWholeIterations) {
  MoveTrial trial({{"a", {.before_s = 1, .flow = 1, .moved = true}}}, 10);
  for (const double start : {10.2, 10.9, 12.9, 12.9, 14.9}) trial.SeeStart("a", start);  // the first began before it was in force
  EXPECT_FALSE(trial.Judge().has_value());
  trial.SeeStart("a", 15.9);  // 2, 2 and 1 s
  ASSERT_TRUE(trial.Judge().has_value());
  EXPECT_DOUBLE_EQ(trial.Judge()->speed, 0.5);
}

TEST(MoveTrial, OthersCountIfTheyWereSeen) {
  MoveTrial trial({{"a", {.before_s = 1, .flow = 1, .moved = true}},
                   {"b", {.before_s = 1, .flow = 2}},
                   {"c", {.before_s = 9, .flow = 3}}}, 0);
  trial.SeePeriod("a", 0.8);
  EXPECT_DOUBLE_EQ(trial.Judge()->speed, 1.25);
  trial.SeePeriod("b", 2);  // 1.25 and 0.5
  EXPECT_DOUBLE_EQ(trial.Judge()->speed, 0.875);
  EXPECT_FALSE(trial.IsLate(10 + 30 * 9));
  EXPECT_TRUE(trial.IsLate(10 + 30 * 9 + 1));
}

TEST(UndoneMoves, HoldTwiceAsLongEachTime) {
  UndoneMoves undone;
  const LaneWeights weights{{4000, 16}}, others{{4001, 16}};
  EXPECT_EQ(undone.Add({{7, weights}}, 0), 60);
  EXPECT_TRUE(undone.Holds(7, weights, 59));
  EXPECT_FALSE(undone.Holds(7, others, 59));
  EXPECT_FALSE(undone.Holds(8, weights, 59));
  EXPECT_FALSE(undone.Holds(7, weights, 60));
  EXPECT_EQ(undone.Add({{7, weights}}, 100), 120);
  EXPECT_TRUE(undone.Holds(7, weights, 219));
}

}  // namespace
}  // namespace weft::controller

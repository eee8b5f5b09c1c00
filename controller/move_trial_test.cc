#include "controller/move_trial.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::controller {
namespace {

TEST(MoveTrial, JudgesByTheMedianOfThreeWholeIterations) {
  MoveTrial trial({{"a", {.before_s = 1, .flow = 1}}}, 10);
  for (const double start : {10.2, 10.9, 12.9, 12.9, 14.9}) trial.SeeStart("a", start);  // the first began before it was in force
  EXPECT_FALSE(trial.Judge().has_value());
  trial.SeeStart("a", 15.9);  // 2, 2 and 1 s
  ASSERT_TRUE(trial.Judge().has_value());
  EXPECT_DOUBLE_EQ(trial.Judge()->speed, 0.5);
  EXPECT_FALSE(trial.IsLate(10 + 10 + 30));
  EXPECT_TRUE(trial.IsLate(10 + 10 + 30 + 1));
}

TEST(MoveTrial, SaysWhoseJobsAreSlowerAndBelievesNoWordTooMuch) {
  MoveTrial trial({{"a", {.before_s = 1, .flow = 1, .owner = 7}}, {"b", {.before_s = 1, .flow = 2, .owner = 8}}}, 0);
  trial.SeePeriod("a", 1);
  EXPECT_FALSE(trial.Judge().has_value()) << "all that were moved";
  trial.SeePeriod("b", 1000);  // counts as twice
  EXPECT_DOUBLE_EQ(trial.Judge()->speed, 0.75);
  EXPECT_EQ(trial.Judge()->owners, (std::set<Owner>{7, 8}));
  EXPECT_EQ(trial.Judge()->slower, std::set<Owner>{8});
}

TEST(MoveTrial, AsManyBytesAsBeforeAreNoLongerIterations) {
  // Iterations of 0.4 s with 4 MB each; after the move four of them are taken for one.
  for (const double share : {1.0, 0.5, 0.0}) {
    MoveTrial trial({{"a", {.before_s = 0.4, .flow = 1, .rate = 10e6}}}, 10);
    trial.SeeBytes("a", 70e6, 10.2);  // not in force yet
    for (int i = 0; i <= 20; ++i) trial.SeeBytes("a", 100e6 + share * i * 4e6, 11 + 0.4 * i);
    for (int i = 0; i <= 3; ++i) trial.SeeStart("a", 11 + 1.6 * i);
    ASSERT_TRUE(trial.Judge().has_value());
    EXPECT_DOUBLE_EQ(trial.Judge()->speed, std::max(0.5, share)) << share;
  }
  MoveTrial unknown({{"a", {.before_s = 0.4, .flow = 1}}}, 10);
  for (int i = 0; i <= 3; ++i) unknown.SeeStart("a", 11 + 1.6 * i);
  EXPECT_DOUBLE_EQ(unknown.Judge()->speed, 0.5) << "where nothing was known of its bytes";
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

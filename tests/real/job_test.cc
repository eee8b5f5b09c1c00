#include "tests/real/job.h"

#include <gtest/gtest.h>

namespace weft::real {
namespace {

/// Steps that end at 1, 2, 3, 5, 6 s, each begun where the one before ended.
const std::vector<Step> kSteps = {{0, 1}, {1, 2}, {2, 3}, {3, 5}, {5, 6}};

TEST(WholeIterations, AreCountedFromTheEndOfTheFirstStepThatBeganInTime) {
  const Iterations all = WholeIterations(kSteps, 0.5, 6);
  EXPECT_EQ(all.count, 3);
  EXPECT_DOUBLE_EQ(all.begin_s, 1);
  EXPECT_DOUBLE_EQ(all.mean.count(), 4.0 / 3);
  EXPECT_DOUBLE_EQ(all.median.count(), 1);
  const Iterations cut = WholeIterations(kSteps, 0.5, 5.9);
  EXPECT_EQ(cut.count, 2) << "the last ends too late";
  EXPECT_DOUBLE_EQ(cut.mean.count(), 1.5);
  EXPECT_DOUBLE_EQ(cut.median.count(), 2) << "of two the later in order";
}

TEST(WholeIterations, AreNoneWithFewerThanTwoSteps) {
  for (const double from : {4.0, 7.0}) {
    const Iterations none = WholeIterations(kSteps, from, 6);
    EXPECT_EQ(none.count, 0) << from;
    EXPECT_EQ(none.mean.count(), 0) << from;
  }
}

}  // namespace
}  // namespace weft::real

#include "planner/parallelism/prediction_interval.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::planner::inline parallelism {
namespace {

constexpr Predicted kKinds[] = {Predicted::kIteration, Predicted::kMixtureIteration, Predicted::kMemory, Predicted::kCollective,
                                Predicted::kSmallCollective};

TEST(PredictionErrors, AscendOnBothSidesOfOne) {
  for (const Predicted kind : kKinds) {
    const auto errors = PredictionErrors(kind);
    ASSERT_GE(errors.size(), 20U) << "for a quantile of 95 % that is no extreme";
    EXPECT_TRUE(std::is_sorted(errors.begin(), errors.end()));
    EXPECT_GT(errors.front(), 0);
    EXPECT_LT(errors.front(), 1);
    EXPECT_GT(errors.back(), 1);
  }
}

// As many below as above, and no more in all than the share leaves.
TEST(IntervalOf, LeavesAsMuchBelowAsAbove) {
  for (const Predicted kind : kKinds) {
    const auto errors = PredictionErrors(kind);
    const auto n = static_cast<double>(errors.size());
    for (const double share : {0.2, 0.5, 0.8, 0.9, 0.95}) {
      const ErrorInterval interval = IntervalOf(kind, share);
      const auto below = std::count_if(errors.begin(), errors.end(), [&](double e) { return e < interval.low; });
      const auto above = std::count_if(errors.begin(), errors.end(), [&](double e) { return e > interval.high; });
      EXPECT_LE(static_cast<double>(below), (1 - share) / 2 * n + 1e-9);
      EXPECT_LE(static_cast<double>(above), (1 - share) / 2 * n + 1e-9);
      EXPECT_LE(interval.low, interval.high);
    }
    const ErrorInterval half = IntervalOf(kind, 0.5), most = IntervalOf(kind, 0.9);
    EXPECT_LE(most.low, half.low);
    EXPECT_GE(most.high, half.high);
  }
}

}  // namespace
}  // namespace weft::planner::parallelism

#include "planner/parallelism/divisors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::planner::inline parallelism {
namespace {

using testing::ElementsAre;

TEST(Divisors, AreAscendingAndComplete) {
  EXPECT_THAT(Divisors(1), ElementsAre(1));
  EXPECT_THAT(Divisors(36), ElementsAre(1, 2, 3, 4, 6, 9, 12, 18, 36));
  EXPECT_THAT(Divisors(13), ElementsAre(1, 13));
}

}  // namespace
}  // namespace weft::planner::parallelism

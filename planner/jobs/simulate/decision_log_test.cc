#include "planner/jobs/simulate/decision_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::planner::inline jobs {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Logged(size_t most, int lines) {
  DecisionLog log(most);
  for (int i = 1; i <= lines; ++i) log.Add(std::to_string(i));
  return std::move(log).Take();
}

TEST(DecisionLog, KeepsWhatFits) {
  EXPECT_THAT(Logged(6, 0), ElementsAre());
  EXPECT_THAT(Logged(6, 5), ElementsAre("1", "2", "3", "4", "5"));
}

TEST(DecisionLog, LeavesOutTheMiddleAndSaysHowMuch) {
  EXPECT_THAT(Logged(6, 7), ElementsAre("1", "2", "3", "(2 lines left out)", "6", "7"));
  EXPECT_THAT(Logged(7, 100), ElementsAre("1", "2", "3", "(94 lines left out)", "98", "99", "100"));
  EXPECT_EQ(Logged(2000, 1'000'000).size(), 2000u);
}

}  // namespace
}  // namespace weft::planner::jobs

#include "access/call_budget.h"

#include <gmock/gmock.h>

namespace weft::access {
namespace {

constexpr Access kAll[] = {Access::kSession, Access::kRead, Access::kSubmit, Access::kOperate};

int TakeAll(CallBudget& budget, const std::string& caller, Access access, Seconds now) {
  int taken = 0;
  while (budget.Take(caller, access, now) == Seconds(0)) ++taken;
  return taken;
}

TEST(CallBudget, ABucketEmptiesAndFillsAgain) {
  for (const Access access : kAll) {
    const CallRate rate = RateOf(access);
    CallBudget budget;
    EXPECT_EQ(TakeAll(budget, "operator ann", access, Seconds(100)), rate.most);
    // Empty: the next token is there after 1 / rate.
    EXPECT_NEAR(budget.Take("operator ann", access, Seconds(100)).count(), 1 / rate.per_s, 1e-9);
    EXPECT_EQ(TakeAll(budget, "operator ann", access, Seconds(101)), rate.per_s) << "those of a second";
    EXPECT_EQ(TakeAll(budget, "operator ann", access, Seconds(1e6)), rate.most) << "no more than a bucket holds";
  }
}

TEST(CallBudget, WhoCallsInALoopTakesNothingFromOthersNorFromHisOtherCalls) {
  CallBudget budget;
  TakeAll(budget, "viewer wall", Access::kRead, Seconds(1));
  EXPECT_GT(budget.Take("viewer wall", Access::kRead, Seconds(1)), Seconds(0));
  EXPECT_EQ(budget.Take("viewer ann", Access::kRead, Seconds(1)), Seconds(0));
  EXPECT_EQ(budget.Take("viewer wall", Access::kSubmit, Seconds(1)), Seconds(0));
}

TEST(CallBudget, HoweverManyCallersThereAreItsMemoryIsBounded) {
  CallBudget budget;
  for (size_t i = 0; i < CallBudget::kMostBuckets; ++i) {
    ASSERT_EQ(budget.Take("host " + std::to_string(i), Access::kOperate, Seconds(1)), Seconds(0));
  }
  // The others share one.
  int taken = 0;
  for (int i = 0; i < 200; ++i) {
    taken += budget.Take("late " + std::to_string(i), Access::kOperate, Seconds(1)) == Seconds(0);
  }
  EXPECT_EQ(taken, RateOf(Access::kOperate).most);
  EXPECT_EQ(TakeAll(budget, "host 7", Access::kOperate, Seconds(1)), RateOf(Access::kOperate).most - 1) << "who was there has his own";
  // Whose bucket is full again makes room.
  EXPECT_EQ(TakeAll(budget, "late 300", Access::kOperate, Seconds(1000)), RateOf(Access::kOperate).most);
  EXPECT_EQ(TakeAll(budget, "late 301", Access::kOperate, Seconds(1000)), RateOf(Access::kOperate).most);
}

}  // namespace
}  // namespace weft::access

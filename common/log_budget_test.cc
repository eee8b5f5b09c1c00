#include "common/log_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kSecond = 1'000'000'000;

TEST(LogBudget, RefusesWhatIsOverItAndSaysHowMuchWhenTheMinuteIsOver) {
  LogBudget budget(2);
  EXPECT_TRUE(budget.Take("a", 100 * kSecond));
  EXPECT_TRUE(budget.Take("a", 101 * kSecond));
  EXPECT_FALSE(budget.Take("a", 102 * kSecond));
  EXPECT_FALSE(budget.Take("a", 159 * kSecond));
  EXPECT_THAT(budget.TakeLeftOut(159 * kSecond), IsEmpty()) << "its minute began at 100 s";
  EXPECT_THAT(budget.TakeLeftOut(160 * kSecond), ElementsAre(Pair("a", 2)));
  EXPECT_THAT(budget.TakeLeftOut(160 * kSecond), IsEmpty()) << "said once";
  EXPECT_TRUE(budget.Take("a", 161 * kSecond)) << "a new minute";
}

TEST(LogBudget, OneKeyDoesNotSpendWhatAnotherHas) {
  LogBudget budget(1);
  EXPECT_TRUE(budget.Take("noisy", kSecond));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(budget.Take("noisy", kSecond));
  EXPECT_TRUE(budget.Take("quiet", kSecond));
  EXPECT_THAT(budget.TakeLeftOut(61 * kSecond), ElementsAre(Pair("noisy", 1000))) << "nothing of the quiet one";
}

}  // namespace
}  // namespace weft

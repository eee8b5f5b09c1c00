#include "planner/search/best_first.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::planner {
namespace {

TEST(BestFirst, PrunesWhatItsBoundRulesOut) {
  const std::vector<double> bounds = {5, 1, 9}, values = {6, 2, 9};
  const BestFirstResult result = BestFirst(bounds, 1, 100, [&](size_t i) { return values[i]; });
  ASSERT_EQ(result.best.size(), 1u);
  EXPECT_EQ(result.best[0].candidate, 1u);
  EXPECT_EQ(result.evaluated, 1);
  EXPECT_EQ(result.pruned, 2);
  EXPECT_TRUE(result.complete);
}

TEST(BestFirst, EqualValuesRankByPlace) {
  const std::vector<double> bounds = {1, 0, 1};
  const BestFirstResult result = BestFirst(bounds, 2, 100, [](size_t) { return 1.0; });
  ASSERT_EQ(result.best.size(), 2u);
  EXPECT_EQ(result.best[0].candidate, 0u);
  EXPECT_EQ(result.best[1].candidate, 1u);
}

TEST(BestFirst, ASpentBudgetIsSaidAndAnEmptyListIsDone) {
  const std::vector<double> bounds = {0, 0, 0};
  EXPECT_FALSE(BestFirst(bounds, 1, 2, [](size_t) { return 1.0; }).complete);
  EXPECT_TRUE(BestFirst({}, 1, 2, [](size_t) { return 1.0; }).complete);
}

// Against sorting all values, on random lists with bounds below them.
TEST(BestFirst, FindsWhatSortingFinds) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + random() % 30, keep = 1 + random() % 4;
    std::vector<double> bounds, values;
    std::vector<Ranked> all;
    for (size_t i = 0; i < n; ++i) {
      bounds.push_back(static_cast<double>(random() % 20));
      values.push_back(bounds.back() + static_cast<double>(random() % 10));
      all.push_back({i, values.back()});
    }
    std::stable_sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) { return a.value < b.value; });
    const BestFirstResult result = BestFirst(bounds, keep, 1000, [&](size_t i) { return values[i]; });
    ASSERT_EQ(result.best.size(), std::min(keep, n));
    for (size_t i = 0; i < result.best.size(); ++i) ASSERT_EQ(result.best[i].candidate, all[i].candidate);
    ASSERT_EQ(result.evaluated + result.pruned, static_cast<int64_t>(n));
  }
}

}  // namespace
}  // namespace weft::planner

#include "planner/parallelism/choice_knapsack.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace weft::planner::inline parallelism {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A group that owns its choices.
struct Items {
  std::vector<Choice> choices;
  int64_t count = 1;
};

ChoiceKnapsack Prepared(const std::vector<Items>& items) {
  std::vector<ChoiceGroup> groups;
  for (const Items& one : items) groups.push_back({one.choices, one.count});
  ChoiceKnapsack knapsack;
  knapsack.Prepare(groups);
  return knapsack;
}
KnapsackAnswer SolveChoiceKnapsack(const std::vector<Items>& items, int64_t budget, const KnapsackLimits& limits) {
  return Prepared(items).Solve(budget, limits);
}
double RelaxedKnapsack(const std::vector<Items>& items, int64_t budget) { return Prepared(items).Relaxed(budget); }

/// By trying every combination of choices of single items.
struct Enumeration {
  double best = kInfinity;
  void Try(const std::vector<std::vector<Choice>>& items, size_t i, double time, int64_t memory, int64_t peak,
           int64_t budget) {
    if (memory + peak > budget) return;
    if (i == items.size()) {
      best = std::min(best, time);
      return;
    }
    for (const Choice& choice : items[i]) {
      Try(items, i + 1, time + choice.time, memory + choice.memory, std::max(peak, choice.peak), budget);
    }
  }
};

double Enumerate(const std::vector<Items>& groups, int64_t budget) {
  std::vector<std::vector<Choice>> items;
  for (const Items& group : groups) items.insert(items.end(), static_cast<size_t>(group.count), group.choices);
  Enumeration enumeration;
  enumeration.Try(items, 0, 0, 0, 0, budget);
  return enumeration.best;
}

TEST(ChoiceKnapsack, BuysTheSteepestTimeFirst) {
  // 10 bytes to spare: the second group's step saves 5 s for 5 bytes, the first one's 4 s for 8.
  const std::vector<Items> groups = {{{{9, 0, 0}, {5, 8, 0}}}, {{{7, 0, 0}, {2, 5, 0}}}};
  const KnapsackAnswer answer = SolveChoiceKnapsack(groups, 10, {});
  ASSERT_TRUE(answer.feasible);
  EXPECT_DOUBLE_EQ(answer.time, 11);
  EXPECT_EQ(answer.memory, 5);
  EXPECT_EQ(answer.taken[0], (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(answer.taken[1], (std::vector<int64_t>{0, 1}));
  EXPECT_DOUBLE_EQ(RelaxedKnapsack(groups, 10), 16 - 5 - 4 * 5.0 / 8);
}

TEST(ChoiceKnapsack, ThePeakCountsOnceAndOnlyTheLargest) {
  // Two items with 6 bytes of peak each fit 10 bytes with 2 of memory each, but not 9.
  const std::vector<Items> groups = {{{{1, 2, 6}, {5, 0, 0}}, 2}};
  EXPECT_DOUBLE_EQ(SolveChoiceKnapsack(groups, 10, {}).time, 2);
  EXPECT_DOUBLE_EQ(SolveChoiceKnapsack(groups, 9, {}).time, 6);
  EXPECT_DOUBLE_EQ(SolveChoiceKnapsack(groups, 7, {}).time, 10);
  EXPECT_FALSE(SolveChoiceKnapsack(groups, -1, {}).feasible);
  EXPECT_EQ(SolveChoiceKnapsack(groups, -1, {}).lower_bound, kInfinity);
}

TEST(ChoiceKnapsack, ASpentBudgetIsSaidAndTheBoundHolds) {
  std::mt19937 random(3);
  std::vector<Items> groups(30);
  for (Items& group : groups) {
    for (int k = 0; k < 4; ++k) {
      group.choices.push_back({static_cast<double>(random() % 997), static_cast<int64_t>(random() % 991), 0});
    }
  }
  const KnapsackAnswer cut = SolveChoiceKnapsack(groups, 9000, {.states = 20});
  EXPECT_FALSE(cut.complete);
  const KnapsackAnswer whole = SolveChoiceKnapsack(groups, 9000, {});
  EXPECT_TRUE(whole.complete);
  EXPECT_LE(cut.lower_bound, whole.time);
}

// Random items of all shapes: few or many bytes, equal rates of exchange, peaks, counts.
TEST(ChoiceKnapsack, EqualsEnumerationOnThousandsOfRandomCases) {
  std::mt19937 random(11);
  int feasible = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Items> groups;
    const size_t n = 1 + random() % 4;
    const unsigned range = round % 2 == 0 ? 8 : 1000;
    int64_t most = 0;
    for (size_t g = 0; g < n; ++g) {
      Items group{.choices = {}, .count = static_cast<int64_t>(1 + random() % 3)};
      for (size_t k = 0; k < 1 + random() % 3; ++k) {
        Choice choice{static_cast<double>(random() % range), static_cast<int64_t>(random() % range),
                      random() % 3 == 0 ? static_cast<int64_t>(random() % range) : 0};
        if (round % 3 == 0) choice.time = static_cast<double>(2000 - choice.memory);
        group.choices.push_back(choice);
        most += choice.memory * group.count;
      }
      groups.push_back(group);
    }
    const int64_t budget = static_cast<int64_t>(random() % static_cast<unsigned>(most + 2));
    const double expected = Enumerate(groups, budget);
    const KnapsackAnswer answer = SolveChoiceKnapsack(groups, budget, {});
    ASSERT_EQ(answer.feasible, expected != kInfinity) << round;
    ASSERT_LE(RelaxedKnapsack(groups, budget), expected + 1e-9) << round;
    const KnapsackAnswer by_states = SolveChoiceKnapsack(groups, budget, {.enumerated = 0});
    ASSERT_EQ(by_states.feasible, answer.feasible) << round;
    if (answer.feasible) {
      ASSERT_NEAR(by_states.time, expected, 1e-9) << round;
    }
    if (!answer.feasible) continue;
    ++feasible;
    ASSERT_NEAR(answer.time, expected, 1e-9) << round;
    ASSERT_LE(answer.memory, budget) << round;
    ASSERT_TRUE(answer.complete);
  }
  EXPECT_GT(feasible, 1500);
}

// Ten to thirty layers with dozens of ways each: both methods give the same, whatever was asked before.
TEST(ChoiceKnapsack, EnumerationAndStatesAgreeOnManyLayers) {
  std::mt19937 random(29);
  for (int round = 0; round < 40; ++round) {
    std::vector<Items> groups(2);
    for (Items& group : groups) {
      group.count = 5 + static_cast<int64_t>(random() % 10);
      for (int k = 0; k < 20; ++k) {
        const int64_t memory = static_cast<int64_t>(random() % 100'000);
        group.choices.push_back({3e5 - 2 * static_cast<double>(memory) + static_cast<double>(random() % 50'000), memory,
                                 static_cast<int64_t>(random() % 3) * 20'000});
      }
    }
    ChoiceKnapsack once = Prepared(groups);
    for (const int64_t budget : {300'000, 900'000, 1'500'000, 900'000}) {
      const KnapsackAnswer answer = once.Solve(budget, {.enumerated = 1 << 22});
      const KnapsackAnswer by_states = SolveChoiceKnapsack(groups, budget, {.enumerated = 0});
      ASSERT_EQ(answer.feasible, by_states.feasible) << round;
      if (!answer.feasible) continue;
      ASSERT_NEAR(answer.time, by_states.time, 1e-9 * answer.time) << round;
      int64_t memory = 0, peak = 0;
      for (size_t g = 0; g < groups.size(); ++g) {
        for (size_t i = 0; i < by_states.taken[g].size(); ++i) {
          memory += by_states.taken[g][i] * groups[g].choices[i].memory;
          if (by_states.taken[g][i] > 0) peak = std::max(peak, groups[g].choices[i].peak);
        }
      }
      ASSERT_LE(memory + peak, budget) << round;
    }
  }
}

}  // namespace
}  // namespace weft::planner::parallelism

#include "planner/network/max_min.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::planner::inline network {
namespace {

struct Problem {
  std::vector<BitsPerSecond> capacity;
  std::vector<std::vector<LinkId>> links;
  std::vector<double> weight;
  std::vector<double> cap;
  std::vector<int32_t> priority;

  std::vector<MaxMinFlow> Flows() const {
    std::vector<MaxMinFlow> flows;
    for (size_t f = 0; f < links.size(); ++f) {
      flows.push_back({.links = links[f], .weight = weight[f], .cap = BitsPerSecond(cap[f]), .priority = priority[f]});
    }
    return flows;
  }
};

Problem Equal(std::vector<double> capacity, std::vector<std::vector<int>> links) {
  Problem problem;
  for (const double c : capacity) problem.capacity.emplace_back(c);
  for (const auto& path : links) {
    problem.links.emplace_back();
    for (const int l : path) problem.links.back().emplace_back(l);
  }
  problem.weight.assign(links.size(), 1);
  problem.cap.assign(links.size(), 1e300);
  problem.priority.assign(links.size(), 0);
  return problem;
}

std::vector<double> Solve(const Problem& problem) {
  std::vector<double> rates;
  for (const BitsPerSecond rate : MaxMinRates(problem.capacity, problem.Flows())) rates.push_back(rate.value());
  return rates;
}

using testing::DoubleNear;
using testing::ElementsAre;

TEST(MaxMin, TwoFlowsOnOneLinkGetHalfEach) {
  EXPECT_THAT(Solve(Equal({10}, {{0}, {0}})), ElementsAre(5, 5));
}

// The parking lot: the long flow shares link 0 (capacity 1) with one, link 1 (capacity 3) with another.
TEST(MaxMin, AFlowHeldElsewhereLeavesTheRestToOthers) {
  EXPECT_THAT(Solve(Equal({1, 3}, {{0, 1}, {0}, {1}})), ElementsAre(0.5, 0.5, 2.5));
}

TEST(MaxMin, RatesFollowWeights) {
  Problem problem = Equal({12}, {{0}, {0}});
  problem.weight = {1, 3};
  EXPECT_THAT(Solve(problem), ElementsAre(3, 9));
}

TEST(MaxMin, ACapLeavesTheRestToOthers) {
  Problem problem = Equal({12}, {{0}, {0}, {0}});
  problem.cap = {1, 1e300, 1e300};
  EXPECT_THAT(Solve(problem), ElementsAre(1, 5.5, 5.5));
}

TEST(MaxMin, ADeadLinkGivesNothingAndAFlowWithoutLinksItsCap) {
  Problem problem = Equal({0, 8}, {{0, 1}, {1}, {}});
  problem.cap[2] = 7;
  EXPECT_THAT(Solve(problem), ElementsAre(0, 8, 7));
  EXPECT_TRUE(Solve(Equal({1}, {})).empty());
}

// The first priority takes 10 of link 0, where the second then gets nothing; on link 1 it gets what the cap leaves,
// 6 - 2.
TEST(MaxMin, ALowerPriorityGetsOnlyWhatIsLeft) {
  Problem problem = Equal({10, 6}, {{0}, {0, 1}, {1}, {1}});
  problem.cap = {1e300, 1e300, 2, 1e300};
  problem.priority = {0, 1, 0, 7};
  EXPECT_THAT(Solve(problem), ElementsAre(10, 0, 2, 4));
}

// 600 flows of 3 kinds are solved as 3 classes: 300·1 + 200·2 + 100·3 weights on a link of 1,000.
TEST(MaxMin, ManyEqualFlowsGetWhatEachWouldGetAlone) {
  std::vector<std::vector<int>> links(600, {0});
  Problem problem = Equal({1000}, links);
  for (size_t f = 0; f < 600; ++f) problem.weight[f] = f % 6 < 3 ? 1 : f % 6 < 5 ? 2 : 3;
  const std::vector<double> rates = Solve(problem);
  for (size_t f = 0; f < 600; ++f) ASSERT_DOUBLE_EQ(rates[f], problem.weight[f]) << f;
}

TEST(MaxMin, WeightsThatDifferByTwelveOrdersDoNotBreakIt) {
  Problem problem = Equal({1e9}, {{0}, {0}, {0}});
  problem.weight = {1e6, 1e-6, 1e-6};
  problem.cap = {1e3, 1e300, 1e300};
  EXPECT_THAT(Solve(problem), ElementsAre(1e3, DoubleNear(5e8 - 500, 1), DoubleNear(5e8 - 500, 1)));
}

/// The definition for one priority, step by step: raise all free flows until the first link or cap is full, freeze,
/// repeat.
std::vector<double> OnePriority(const Problem& problem) {
  const size_t n = problem.links.size();
  std::vector<double> rate(n, 0);
  std::vector<bool> frozen(n, false);
  for (;;) {
    double step = 1e300;
    for (size_t l = 0; l < problem.capacity.size(); ++l) {
      double used = 0, weight = 0;
      for (size_t f = 0; f < n; ++f) {
        if (!std::count(problem.links[f].begin(), problem.links[f].end(), LinkId(static_cast<int>(l)))) continue;
        used += rate[f];
        if (!frozen[f]) weight += problem.weight[f];
      }
      if (weight > 0) step = std::min(step, (problem.capacity[l].value() - used) / weight);
    }
    for (size_t f = 0; f < n; ++f) {
      if (!frozen[f]) step = std::min(step, (problem.cap[f] - rate[f]) / problem.weight[f]);
    }
    if (std::count(frozen.begin(), frozen.end(), false) == 0) return rate;
    for (size_t f = 0; f < n; ++f) {
      if (!frozen[f]) rate[f] += std::max(0.0, step) * problem.weight[f];
    }
    for (size_t f = 0; f < n; ++f) {
      bool held = rate[f] >= problem.cap[f] * (1 - 1e-9);
      for (const LinkId l : problem.links[f]) {
        double used = 0;
        for (size_t g = 0; g < n; ++g) {
          if (std::count(problem.links[g].begin(), problem.links[g].end(), l)) used += rate[g];
        }
        held |= used >= problem.capacity[l.index()].value() * (1 - 1e-9);
      }
      if (held) frozen[f] = true;
    }
  }
}

/// Priority by priority, each on what the ones before it have left.
std::vector<double> Reference(const Problem& problem) {
  std::vector<double> rates(problem.links.size(), 0);
  std::vector<BitsPerSecond> left = problem.capacity;
  const int32_t last = *std::max_element(problem.priority.begin(), problem.priority.end());
  for (int32_t priority = 0; priority <= last; ++priority) {
    Problem part{.capacity = left};
    std::vector<size_t> members;
    for (size_t f = 0; f < rates.size(); ++f) {
      if (problem.priority[f] != priority) continue;
      members.push_back(f);
      part.links.push_back(problem.links[f]);
      part.weight.push_back(problem.weight[f]);
      part.cap.push_back(problem.cap[f]);
    }
    const std::vector<double> found = OnePriority(part);
    for (size_t i = 0; i < members.size(); ++i) {
      rates[members[i]] = found[i];
      for (const LinkId l : part.links[i]) {
        left[l.index()] = BitsPerSecond(std::max(0.0, left[l.index()].value() - found[i]));
      }
    }
    for (BitsPerSecond& rest : left) rest = rest.value() < 1e-9 ? BitsPerSecond(0) : rest;
  }
  return rates;
}

Problem Random(std::mt19937* random, int priorities = 1) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(*random); };
  const int links = draw(1, 8), flows = draw(1, 14);
  Problem problem;
  for (int l = 0; l < links; ++l) problem.capacity.emplace_back(draw(1, 20));
  for (int f = 0; f < flows; ++f) {
    std::vector<LinkId> all, path;
    for (int l = 0; l < links; ++l) all.emplace_back(l);
    std::sample(all.begin(), all.end(), std::back_inserter(path), draw(1, 3), *random);
    problem.links.push_back(path);
    problem.weight.push_back(draw(1, 4));
    problem.cap.push_back(draw(0, 2) == 0 ? draw(1, 6) : 1e300);
    problem.priority.push_back(draw(0, priorities - 1));
  }
  return problem;
}

TEST(MaxMin, AgreesWithTheDefinitionOnRandomProblems) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 3000; ++round) {
    const Problem problem = Random(&random, 1 + round % 4);
    const std::vector<double> fast = Solve(problem), slow = Reference(problem);
    for (size_t f = 0; f < fast.size(); ++f) ASSERT_NEAR(fast[f], slow[f], 1e-6) << "round " << round << " flow " << f;
  }
}

// No link above its capacity, and every flow below its cap crosses a full link on which no flow has more per weight.
TEST(MaxMin, NoLinkIsOverfullAndNoFlowCouldGrow) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const Problem problem = Random(&random);
    const std::vector<double> rates = Solve(problem);
    std::vector<double> used(problem.capacity.size(), 0), most(problem.capacity.size(), 0);
    for (size_t f = 0; f < rates.size(); ++f) {
      for (const LinkId l : problem.links[f]) {
        used[l.index()] += rates[f];
        most[l.index()] = std::max(most[l.index()], rates[f] / problem.weight[f]);
      }
    }
    for (size_t l = 0; l < used.size(); ++l) ASSERT_LE(used[l], problem.capacity[l].value() * (1 + 1e-9));
    for (size_t f = 0; f < rates.size(); ++f) {
      bool held = rates[f] >= problem.cap[f] * (1 - 1e-9);
      for (const LinkId l : problem.links[f]) {
        held |= used[l.index()] >= problem.capacity[l.index()].value() * (1 - 1e-9) &&
                rates[f] / problem.weight[f] >= most[l.index()] * (1 - 1e-9);
      }
      ASSERT_TRUE(held) << "round " << round << " flow " << f;
    }
  }
}

// Metamorphic: twice the capacity, twice the rates.
TEST(MaxMin, ScalesWithCapacity) {
  std::mt19937 random(3);
  Problem problem = Random(&random);
  std::fill(problem.cap.begin(), problem.cap.end(), 1e300);
  const std::vector<double> once = Solve(problem);
  for (BitsPerSecond& capacity : problem.capacity) capacity = capacity * 2;
  const std::vector<double> twice = Solve(problem);
  for (size_t f = 0; f < once.size(); ++f) EXPECT_NEAR(twice[f], 2 * once[f], 1e-9);
}

}  // namespace
}  // namespace weft::planner::network

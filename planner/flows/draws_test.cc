#include "planner/flows/draws.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace weft::planner {
namespace {

using testing::ElementsAre;

FlowProblem Problem(size_t flows, uint32_t seed) {
  std::mt19937 random(seed);
  FlowProblem problem{.topology = LeafSpine(2, 4, 6, GigabitsPerSecond(1))};
  for (size_t f = 0; f < flows; ++f) {
    FlowDemand flow{.key = f, .job = "a", .demand = MegabitsPerSecond(static_cast<double>(300 + random() % 700))};
    const NodeId from = *problem.topology.FindNode(fmt::format("h{}", f + 1));
    for (auto& path : problem.topology.ShortestPaths(from, *problem.topology.FindNode(fmt::format("h{}", f + 7)))) {
      flow.paths.push_back({std::move(path)});
    }
    problem.flows.push_back(std::move(flow));
  }
  return problem;
}

TEST(ChooseDraws, AFlowOnACrowdedPathTakesAnotherDraw) {
  const DrawPlan plan = ChooseDraws(Problem(2, 1), {{2}, {2, 2, 0}});
  EXPECT_THAT(plan.draw, ElementsAre(0, 2));
  EXPECT_LT(plan.bottleneck, plan.bottleneck_first);
  EXPECT_TRUE(plan.complete);
}

TEST(ChooseDraws, FlowsThatDoNotMeetKeepTheirDraw) {
  EXPECT_THAT(ChooseDraws(Problem(2, 1), {{1, 0}, {2, 3}}).draw, ElementsAre(0, 0));
}

// Three draws for each of five flows: 243 choices.
TEST(ChooseDraws, IsNearTheBestOfAllChoices) {
  double found = 0, best = 0, first = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const FlowProblem problem = Problem(5, seed);
    std::mt19937 random(seed);
    std::vector<std::vector<size_t>> draws(5);
    for (auto& of_flow : draws) of_flow = {random() % 4, random() % 4, random() % 4};
    const DrawPlan plan = ChooseDraws(problem, draws);
    double least = 1e300;
    for (int choice = 0; choice < 243; ++choice) {
      std::vector<double> load(4, 0);
      double host = 0;
      for (int f = 0, rest = choice; f < 5; ++f, rest /= 3) {
        const size_t i = static_cast<size_t>(f);
        const double demand = problem.flows[i].demand.value() / 1e9;
        load[draws[i][static_cast<size_t>(rest % 3)]] += demand;
        host = std::max(host, demand);
      }
      least = std::min(least, std::max(host, *std::max_element(load.begin(), load.end())));
    }
    EXPECT_GE(plan.bottleneck, least * (1 - 1e-9)) << seed;
    EXPECT_LE(plan.bottleneck, plan.bottleneck_first * (1 + 1e-9)) << seed;
    found += plan.bottleneck;
    best += least;
    first += plan.bottleneck_first;
  }
  EXPECT_LE(found, best * 1.02);
  EXPECT_GT(first, best * 1.2) << "or there was nothing to choose";
}

}  // namespace
}  // namespace weft::planner

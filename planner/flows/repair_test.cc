#include "planner/flows/repair.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/flows/path_choice.h"

namespace weft::planner::inline flows {
namespace {

constexpr double kRate = 1e9;

/// `hosts` per leaf of four leaves and four spines; flows between drawn hosts under different leaves, on drawn paths.
FlowProblem Drawn(std::mt19937& random, int flows) {
  FlowProblem problem{.topology = LeafSpine(4, 4, 4, BitsPerSecond(kRate))};
  for (int f = 0; f < flows; ++f) {
    const int from = static_cast<int>(random() % 16), to = (from + 4 + static_cast<int>(random() % 12)) % 16;
    FlowDemand flow{.key = static_cast<uint64_t>(f), .job = fmt::format("j{}", f / 4), .demand = BitsPerSecond(kRate / 4)};
    for (auto& path : problem.topology.ShortestPaths(*problem.topology.FindNode(fmt::format("h{}", from + 1)),
                                                     *problem.topology.FindNode(fmt::format("h{}", to + 1)))) {
      flow.paths.push_back({std::move(path)});
    }
    flow.present_shares.assign(flow.paths.size(), 0);
    flow.present_shares[random() % flow.paths.size()] = 1;
    problem.flows.push_back(std::move(flow));
  }
  return problem;
}

LinkId Uplink(const FlowProblem& problem, int leaf, int spine) {
  return *problem.topology.FindLink(*problem.topology.FindNode(fmt::format("leaf{}", leaf)),
                                    *problem.topology.FindNode(fmt::format("spine{}", spine)));
}

/// Starts from what a whole plan has settled on.
void Settle(FlowProblem* problem) {
  const FlowPlan plan = ChoosePaths(*problem);
  for (size_t f = 0; f < plan.flows.size(); ++f) problem->flows[f].present_shares = plan.flows[f].shares;
}

TEST(Repair, LeavesAPlanThatStandsAsItIs) {
  std::mt19937 random(1);
  FlowProblem problem = Drawn(random, 24);
  Settle(&problem);
  problem.quick = true;
  EXPECT_FALSE(ChoosePaths(problem).changed);
}

TEST(Repair, FlowsLeaveADeadLinkAndNoOthersMove) {
  std::mt19937 random(2);
  FlowProblem problem = Drawn(random, 24);
  Settle(&problem);
  const FlowDemand& first = problem.flows[0];
  const auto used = std::ranges::max_element(first.present_shares) - first.present_shares.begin();
  const LinkId dead = first.paths[static_cast<size_t>(used)].links[1];   // from its leaf to a spine
  problem.topology.SetCapacity(dead, BitsPerSecond(0));
  problem.quick = true;
  const FlowPlan plan = ChoosePaths(problem);
  int left = 0;
  for (size_t f = 0; f < plan.flows.size(); ++f) {
    for (size_t p = 0; p < plan.flows[f].shares.size(); ++p) {
      const std::vector<LinkId>& links = problem.flows[f].paths[p].links;
      if (std::ranges::find(links, dead) == links.end()) continue;
      EXPECT_EQ(plan.flows[f].shares[p], 0) << f;
      left += problem.flows[f].present_shares[p] > 0;
    }
  }
  EXPECT_GT(left, 0) << "the case has flows on the link";
}

// What is new or crowded is placed almost as well as by a plan of everything: the bound is the whole plan's.
TEST(Repair, IsAlmostAsGoodAsAWholePlanAfterAChange) {
  double quick_sum = 0, whole_sum = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    FlowProblem problem = Drawn(random, 40);
    Settle(&problem);
    for (size_t f = 0; f < problem.flows.size(); f += 10) problem.flows[f].present_shares.clear();
    problem.topology.SetCapacity(Uplink(problem, 1 + static_cast<int>(seed % 4), 1 + static_cast<int>(seed / 4 % 4)), BitsPerSecond(kRate / 2));
    const FlowPlan whole = ChoosePaths(problem);
    problem.quick = true;
    const FlowPlan quick = ChoosePaths(problem);
    EXPECT_LE(quick.bottleneck_bound, whole.bottleneck_after * (1 + 1e-9)) << seed;
    EXPECT_LE(quick.bottleneck_after, 1.35 * whole.bottleneck_after) << seed;
    quick_sum += quick.bottleneck_after;
    whole_sum += whole.bottleneck_after;
    for (const FlowShare& flow : quick.flows) {
      double sum = 0;
      for (const double share : flow.shares) sum += share;
      EXPECT_NEAR(sum, 1, 1e-9);
    }
  }
  EXPECT_LE(quick_sum, 1.05 * whole_sum);
}

TEST(Repair, AnAnswerThatIsStoppedComes) {
  std::mt19937 random(3);
  const FlowProblem problem = Drawn(random, 200);
  std::stop_source stop;
  stop.request_stop();
  const FlowPlan plan = ChoosePaths(problem, stop.get_token());
  EXPECT_EQ(plan.flows.size(), problem.flows.size());
  EXPECT_FALSE(plan.complete);
}

}  // namespace
}  // namespace weft::planner::flows

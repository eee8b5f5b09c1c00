// What `weft plan` calls proved is the fastest of all that are legal and fit, each of them simulated.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "planner/planner.h"
#include "planner/search/testing/random_cases.h"

namespace weft::planner {
namespace {

/// The least simulated time of any leaf that fits; +infinity if none does. `leaves` are counted.
double FastestOfAll(const CostModel& model, const TrainingChanges& allow, int64_t& leaves) {
  const StrategySpace space(model, {.allow = allow});
  CostModel::Scratch scratch;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Strategy& leaf : LeavesOf(space)) {
    ++leaves;
    const Estimate estimate = model.EvaluateSimulated(leaf, scratch);
    if (estimate.fits) fastest = std::min(fastest, estimate.iteration.count());
  }
  return fastest;
}

TEST(Proof, EqualsTheSimulationOfEveryLegalStrategyOnRandomFabrics) {
  std::mt19937 random(97);
  int feasible = 0, proved = 0, tiers = 0;
  double gap = 0;
  for (int round = 0; round < 1000 && feasible < 200; ++round) {
    const JobSpec job = RandomJob(random);
    const ClusterSpec cluster = RandomCluster(random);
    const auto model = CostModel::Make(job, cluster);
    ASSERT_TRUE(model) << model.error().message();
    const TrainingChanges allow{.low_precision = random() % 4 == 0, .local_steps = random() % 4 == 0, .gossip = random() % 4 == 0};
    int64_t leaves = 0;
    const double fastest = FastestOfAll(*model, allow, leaves);
    const PlanAnswer answer = Plan(job, cluster, {.top = 1, .allow = allow}).value();
    ASSERT_EQ(answer.strategies, leaves);
    ASSERT_EQ(answer.plans.empty(), fastest == std::numeric_limits<double>::infinity());
    if (answer.plans.empty()) continue;
    const JobPlan& plan = answer.plans.front();
    ++feasible;
    tiers += cluster.tiers.empty() ? 0 : 1;
    ASSERT_LE(plan.lower_bound.count(), fastest * (1 + 1e-9)) << round;
    if (plan.gap == 0) {
      ++proved;
      ASSERT_NEAR(plan.predicted.iteration.count() / fastest, 1, 1e-9) << round << " " << DescribeStrategy(plan.strategy);
    }
    gap = std::max(gap, plan.predicted.iteration.count() / fastest - 1);
  }
  EXPECT_EQ(feasible, 200);
  EXPECT_GT(tiers, 50);
  EXPECT_GE(proved, 198);
  EXPECT_LT(gap, 0.02) << "where nothing was proved";
}

}  // namespace
}  // namespace weft::planner

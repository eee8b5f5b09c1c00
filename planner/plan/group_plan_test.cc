#include "planner/plan/group_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;

NodeGroup Group(const char* preset, int64_t nodes, const char* name) {
  NodeGroup group = FindClusterPreset(preset, nodes).value().Groups().front();
  group.name = name;
  return group;
}

JobSpec Job(int64_t batch) {
  return {.name = "job", .model = FindModelPreset("gpt2").value(), .global_batch = batch, .sequence = 1024};
}

int64_t Sequences(const std::vector<GroupShare>& groups) {
  return std::accumulate(groups.begin(), groups.end(), int64_t{0},
                         [](int64_t sum, const GroupShare& group) { return sum + group.sequences; });
}

TEST(GroupPlan, TheFasterGroupTakesMoreOfTheBatch) {
  const ClusterSpec cluster = MakeCluster("mixed", {Group("dgx-a100", 1, "old"), Group("dgx-h100", 1, "new")}, 0.9);
  const PlanAnswer answer = Plan(Job(1024), cluster, {}).value();
  ASSERT_FALSE(answer.plans.empty());
  const JobPlan& plan = answer.plans[0];
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(Sequences(plan.groups), 1024);
  EXPECT_GT(plan.groups[1].sequences, plan.groups[0].sequences);
  EXPECT_THAT(plan.why, Contains(HasSubstr("group new: ")));
  EXPECT_THAT(plan.why, Contains(HasSubstr("not all groups alike: ")));
  EXPECT_LE(plan.lower_bound, plan.predicted.iteration);
  // Moving one step either way does not help: the groups end within a step of each other.
  EXPECT_NEAR(plan.groups[0].time / plan.groups[1].time, 1, 0.25);
  EXPECT_GE(plan.predicted.iteration, std::max(plan.groups[0].time, plan.groups[1].time));
}

TEST(GroupPlan, EqualGroupsShareEqually) {
  const ClusterSpec cluster = MakeCluster("twins", {Group("dgx-a100", 1, "a"), Group("dgx-a100", 1, "b")}, 0.9);
  const auto plan = PlanGroups(Job(256), cluster, {});
  ASSERT_TRUE(plan && plan->has_value());
  ASSERT_EQ((*plan)->groups.size(), 2u);
  if ((*plan)->groups[0].layers.empty()) {
    EXPECT_EQ((*plan)->groups[0].sequences, (*plan)->groups[1].sequences);
  } else {
    EXPECT_EQ((*plan)->groups[0].layers.size(), (*plan)->groups[1].layers.size());
  }
}

// 124 M parameters: 4 bytes each, two groups, one node each: half of them out and half in, at 1 Gbit/s.
TEST(GroupPlan, SlowLinksBetweenSitesCostTheExchangeOfGradients) {
  ClusterSpec cluster = MakeCluster("sites", {Group("dgx-a100", 1, "here"), Group("dgx-a100", 1, "there")}, 1.0);
  cluster.between_groups_rate = GigabitsPerSecond(1);
  cluster.between_groups_latency = Seconds(0.05);
  const double parameters = static_cast<double>(ParameterCount(Job(64).model));
  const double exchange = 2 * (0.05 + parameters * 4 / 2 * 8 / 1e9);
  const PlanOptions options{.fix = ParseFixed("pp=1").value()};
  const auto plan = PlanGroups(Job(64), cluster, options);
  ASSERT_TRUE(plan && plan->has_value());
  const GroupPlan& found = **plan;
  ASSERT_TRUE(found.groups[0].layers.empty());
  const Seconds slowest = std::max(found.groups[0].time, found.groups[1].time);
  EXPECT_NEAR((found.iteration - slowest).count(), exchange, 1e-6);
}

TEST(GroupPlan, APipelineThroughBothGroupsGivesTheFasterMoreLayers) {
  // One GPU per node and links too slow for gradients: activations of one short sequence are less.
  NodeGroup slow = Group("dgx-v100", 2, "slow"), fast = Group("dgx-h100", 2, "fast");
  slow.gpus_per_node = fast.gpus_per_node = 1;
  ClusterSpec cluster = MakeCluster("mixed", {slow, fast}, 1.0);
  cluster.between_groups_rate = GigabitsPerSecond(1);
  JobSpec job = Job(32);
  job.sequence = 256;
  job.precision = Precision::kFp16;
  const auto plan = PlanGroups(job, cluster, {});
  ASSERT_TRUE(plan && plan->has_value());
  const GroupPlan& found = **plan;
  ASSERT_FALSE(found.groups[0].layers.empty());
  const auto layers = [&](size_t g) {
    return std::accumulate(found.groups[g].layers.begin(), found.groups[g].layers.end(), int64_t{0});
  };
  EXPECT_EQ(layers(0) + layers(1), job.model.layers);
  EXPECT_GT(layers(1), layers(0));
}

}  // namespace
}  // namespace weft::planner

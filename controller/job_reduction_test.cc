#include "controller/job_reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/config.h"
#include "controller/job_collectives.h"
#include "controller/job_planner.h"

namespace weft::controller {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// 8 hosts with 50 GB/s each; trees of the same rate.
ReductionJob Job() {
  ReductionJob job{.hosts = 8, .gradients = Bytes(1 << 30), .cluster = {}, .node_rate = GigabytesPerSecond(50)};
  job.cluster = DefaultConfig().planner.cluster;
  return job;
}
ReductionOptions WithTrees(int32_t trees) {
  ReductionOptions options;
  options.switches = {.trees = trees, .levels = 2, .tree_rate = GigabytesPerSecond(50), .hop_latency = Seconds(1e-6)};
  return options;
}

TEST(JobReduction, NothingIsSaidWhereThereAreOnlyGpus) {
  const auto decision = DecideReduction(Job(), {});
  ASSERT_TRUE(decision) << decision.error().message();
  EXPECT_FALSE(decision->has_switches);
  EXPECT_THAT(decision->why, IsEmpty());
}

// A ring sends 7/8 of the data twice, a tree all of it once.
TEST(JobReduction, TreeGoesToAJobThatGainsWhileOneIsLeft) {
  const auto first = DecideReduction(Job(), WithTrees(2));
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_TRUE(first->has_switches && first->tree);
  EXPECT_THAT(first->why, Contains(HasSubstr("a tree is given to the job until it is released")));
  EXPECT_THAT(first->why, Contains(HasSubstr("2 of 2 trees free")));
  EXPECT_THAT(first->why, Contains(HasSubstr("on the switches")));
  ReductionJob late = Job();
  late.trees_held = 2;
  const auto second = DecideReduction(late, WithTrees(2));
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->has_switches);
  EXPECT_FALSE(second->tree);
  EXPECT_THAT(second->why, Contains(HasSubstr("no tree is left")));
  EXPECT_THAT(second->why, Contains(HasSubstr("on the GPUs")));
}

TEST(JobReduction, TreeThatIsSlowerThanTheRingIsNotTaken) {
  ReductionOptions options = WithTrees(2);
  options.switches.tree_rate = GigabytesPerSecond(20);
  const auto decision = DecideReduction(Job(), options);
  ASSERT_TRUE(decision);
  EXPECT_FALSE(decision->tree);
  EXPECT_THAT(decision->why, Contains(HasSubstr("no tree, the job would gain nothing")));
}

TEST(JobReduction, SumsOnCpusThatNcclCannotDoAreSaidAndNotDone) {
  ReductionOptions options;
  options.cpu_sum = GigabytesPerSecond(500);
  options.spare_machines = 8;
  const auto decision = DecideReduction(Job(), options);
  ASSERT_TRUE(decision);
  EXPECT_THAT(decision->why, ElementsAre(HasSubstr("on the spare CPUs")));
  EXPECT_THAT(decision->why, ElementsAre(HasSubstr("NCCL can't, so that they stay on the GPUs")));
}

v1::JobSpec Spec(const std::string& id, const std::string& framework) {
  v1::JobSpec spec;
  spec.set_job_id(id);
  spec.set_model_config_json(
      R"({"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"vocab_size":256,"n_positions":1024})");
  spec.set_global_batch(24);
  spec.set_sequence(512);
  spec.set_precision("fp32");
  spec.set_framework(framework);
  for (const char* host : {"h1", "h2", "h3", "h4", "h5", "h6"}) spec.add_hosts(host);
  return spec;
}

/// Three hosts under each of two leaves; 1 Gbit/s but for the leaves' one uplink of 200 Mbit/s.
PlacementView TwoLeaves() {
  PlacementView view;
  const NodeId spine = view.topology.AddNode("spine1", planner::NodeKind::kSwitch);
  for (int leaf = 1, host = 1; leaf <= 2; ++leaf) {
    const NodeId node = view.topology.AddNode("leaf" + std::to_string(leaf), planner::NodeKind::kSwitch);
    view.topology.AddCable(node, spine, MegabitsPerSecond(200));
    for (int i = 0; i < 3; ++i, ++host) {
      const std::string name = "h" + std::to_string(host);
      view.topology.AddCable(view.topology.AddNode(name, planner::NodeKind::kHost), node, MegabitsPerSecond(1000));
      view.connected.insert(name);
      view.leaf[name] = "leaf" + std::to_string(leaf);
      view.rate[name] = MegabitsPerSecond(1000);
    }
  }
  return view;
}

TEST(JobReduction, PlannedJobHoldsItsTreeAndTheNextOneSeesIt) {
  JobPlannerOptions options = DefaultConfig().planner;
  options.reduction = WithTrees(1);
  PlacementView view = TwoLeaves();
  const auto first = PlanJob(Spec("first", "torchrun"), view, options);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->plan.environment().at(kTreeVariable), "1");
  view.tree_jobs = {"first"};
  const auto second = PlanJob(Spec("second", "torchrun"), view, options);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->plan.environment().at(kTreeVariable), "0");
  EXPECT_THAT(second->plan.why(), Contains(HasSubstr("no tree is left")));
  const auto again = PlanJob(Spec("first", "torchrun"), view, options);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->plan.environment().at(kTreeVariable), "1") << "its own does not stand in its way";
  const auto ours = PlanJob(Spec("ours", "weft-train-ddp"), view, options);
  ASSERT_TRUE(ours);
  EXPECT_FALSE(ours->plan.environment().contains(kTreeVariable));
}

// Both were planned from a view in which the only tree was free.
TEST(JobReduction, OfTwoJobsPlannedAtOnceOnlyTheFirstKeepsTheLastTree) {
  JobPlannerOptions options = DefaultConfig().planner;
  options.reduction = WithTrees(1);
  v1::JobPlan first = PlanJob(Spec("first", "torchrun"), TwoLeaves(), options)->plan;
  v1::JobPlan second = PlanJob(Spec("second", "torchrun"), TwoLeaves(), options)->plan;
  KeepTreeQuota("first", {}, 1, &first);
  EXPECT_EQ(first.environment().at(kTreeVariable), "1");
  KeepTreeQuota("second", {"first"}, 1, &second);
  EXPECT_EQ(second.environment().at(kTreeVariable), "0");
  EXPECT_THAT(second.why(), Contains(HasSubstr("no tree after all")));
  KeepTreeQuota("first", {"first"}, 1, &first);
  EXPECT_EQ(first.environment().at(kTreeVariable), "1") << "its own does not stand in its way";
}

// In a flat ring one flow crosses each uplink at 200 Mbit/s, and every step waits for it: 10 steps of S/6 at 200 Mbit/s. In two
// levels only S/3 of each of three ranks' shares crosses.
TEST(JobReduction, LevelsFollowTheLinksThatProbesHaveShown) {
  const PlacementView view = TwoLeaves();
  const auto planned = PlanJob(Spec("job", "weft-train-ddp"), view, DefaultConfig().planner);
  ASSERT_TRUE(planned) << planned.error().message();
  std::string levels;
  for (const v1::CollectiveChoice& choice : planned->plan.collectives()) {
    if (choice.algorithm() == "hierarchical.3") levels = choice.why();
  }
  EXPECT_THAT(levels, HasSubstr("on the links that probes have shown: a rank gets "));
  PlacementView wide = view;
  for (size_t i = 0; i < wide.topology.links().size(); ++i) {
    wide.topology.SetCapacity(LinkId(static_cast<int32_t>(i)), MegabitsPerSecond(1000));
  }
  const auto even = PlanJob(Spec("job", "weft-train-ddp"), wide, DefaultConfig().planner);
  ASSERT_TRUE(even);
  for (const v1::CollectiveChoice& choice : even->plan.collectives()) {
    const bool large = choice.least_bytes() >= (8 << 20);
    EXPECT_FALSE(large && choice.algorithm() == "hierarchical.3") << "large sizes gain nothing there";
  }
  PlacementView apart;  // probes have shown both leaves and nothing between them
  for (const auto& [host, leaf] : view.leaf) {
    for (const auto& [name, kind] : {std::pair(leaf, planner::NodeKind::kSwitch), std::pair(host, planner::NodeKind::kHost)}) {
      if (!apart.topology.FindNode(name)) apart.topology.AddNode(name, kind);
    }
    apart.topology.AddCable(*apart.topology.FindNode(host), *apart.topology.FindNode(leaf), MegabitsPerSecond(1000));
  }
  const auto islands = PlanJob(Spec("job", "weft-train-ddp"), apart, DefaultConfig().planner);
  ASSERT_TRUE(islands);
  EXPECT_GT(islands->plan.collectives_size(), 0);
  EXPECT_THAT(islands->plan.why(), Contains(HasSubstr("levels of collectives: chosen on equal links: ")));
  PlacementView unknown = view;
  unknown.topology = {};
  const auto blind = PlanJob(Spec("job", "weft-train-ddp"), unknown, DefaultConfig().planner);
  ASSERT_TRUE(blind);
  EXPECT_THAT(blind->plan.why(), Contains(HasSubstr("chosen on equal links: no probe has shown host \"h1\" yet")));
}

TEST(JobReduction, RanksOfOneHostAreJoinedByItsInnerLinks) {
  planner::ClusterSpec cluster = DefaultConfig().planner.cluster;
  const auto fabric = PlaceRanks(TwoLeaves().topology, {"h1", "h4"}, 2, cluster);
  ASSERT_TRUE(fabric) << fabric.error().message();
  ASSERT_EQ(fabric->ranks.size(), 4u);
  const auto inside = fabric->topology.ShortestPaths(fabric->ranks[0], fabric->ranks[1]);
  ASSERT_FALSE(inside.empty());
  for (const LinkId link : inside[0]) EXPECT_EQ(fabric->topology.link(link).kind, planner::LinkKind::kNvlink);
  EXPECT_FALSE(fabric->topology.ShortestPaths(fabric->ranks[1], fabric->ranks[2]).empty());
}

}  // namespace
}  // namespace weft::controller

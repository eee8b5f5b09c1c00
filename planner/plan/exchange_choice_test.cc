// Who sums and what is sent: each way wins where it should, says why, and is never taken where nobody allows it or has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/planner.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;

JobSpec Job(const char* model, int64_t batch) {
  return {.name = "job", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = 1024};
}

/// Sixteen nodes whose NICs are a twentieth of what they are.
ClusterSpec SlowNics() {
  ClusterSpec cluster = FindClusterPreset("dgx-h100", 16).value();
  cluster.nic_rate = cluster.nic_rate * 0.05;
  return cluster;
}

JobPlan Best(const JobSpec& job, const ClusterSpec& cluster, const char* allow, const char* fix = "tp=1,pp=1,cp=1,zero_stage=0") {
  return Plan(job, cluster, {.fix = ParseFixed(fix).value(), .allow = ParseTrainingChanges(allow).value()})->plans.at(0);
}

TEST(ExchangeChoice, NothingChangesTrainingUnlessItIsAllowed) {
  for (const char* fix : {"tp=1,pp=1,cp=1,zero_stage=0", ""}) {
    const JobPlan plan = Best(Job("gpt2-xl", 128), SlowNics(), "", fix);
    EXPECT_EQ(plan.strategy.gradient_wire, GradientWire::kWhole);
    EXPECT_FALSE(ReplicasDiffer(plan.strategy));
    EXPECT_NE(plan.strategy.data_sync, DataSync::kSwitch);
  }
}

TEST(ExchangeChoice, LowerPrecisionWinsWhereTheWireIsSlow) {
  const JobPlan plain = Best(Job("gpt2-xl", 128), SlowNics(), ""), narrow = Best(Job("gpt2-xl", 128), SlowNics(), "low_precision");
  EXPECT_EQ(narrow.strategy.gradient_wire, GradientWire::kFp8);
  EXPECT_LT(narrow.predicted.iteration, plain.predicted.iteration);
  EXPECT_GT(narrow.predicted.memory.gradients, plain.predicted.memory.gradients) << "what rounding leaves out is kept";
  EXPECT_THAT(narrow.why, Contains(HasSubstr("not gradient_wire=whole: +")));
  // Inside a node there is nothing to win: making fp8 of a gradient takes longer than sending it.
  EXPECT_EQ(Best(Job("gpt2-xl", 128), FindClusterPreset("dgx-h100", 1).value(), "low_precision").strategy.gradient_wire, GradientWire::kWhole);
}

TEST(ExchangeChoice, LocalStepsWinWhereTheWireIsSlow) {
  const JobPlan plain = Best(Job("gpt2-xl", 128), SlowNics(), ""), local = Best(Job("gpt2-xl", 128), SlowNics(), "local_steps");
  EXPECT_EQ(local.strategy.local_steps, kLocalSteps);
  EXPECT_LT(local.predicted.iteration, plain.predicted.iteration);
  EXPECT_THAT(local.why, Contains(HasSubstr("not local_steps=1: +")));
  EXPECT_EQ(Best(Job("gpt2-xl", 128), SlowNics(), "", "tp=1,pp=1,cp=1,local_steps=4").strategy.local_steps, 4) << "fixed is allowed";
}

// Eight sites behind a wide-area network: an all-reduce crosses it 2 · 7/8 times, an exchange with one neighbour once.
TEST(ExchangeChoice, GossipWinsBetweenSlowSites) {
  ClusterSpec sites = FindClusterPreset("dgx-h100", 16).value();
  sites.tiers = {{"site", 2, sites.nic_rate * 0.002}, {"wide-area", 16, BitsPerSecond(0)}};
  const JobPlan plain = Best(Job("gpt2-xl", 128), sites, ""), gossip = Best(Job("gpt2-xl", 128), sites, "gossip");
  EXPECT_EQ(gossip.strategy.data_sync, DataSync::kGossip);
  EXPECT_LT(gossip.predicted.iteration, plain.predicted.iteration * 0.8);
  EXPECT_THAT(gossip.why, Contains(HasSubstr("not data_sync=ring: +")));
  EXPECT_NE(Best(Job("gpt2-xl", 128), FindClusterPreset("dgx-h100", 2).value(), "gossip").strategy.data_sync, DataSync::kGossip);
}

TEST(ExchangeChoice, SwitchesSumWhereTheyCan) {
  ClusterSpec cluster = SlowNics();
  const JobPlan plain = Best(Job("gpt2-xl", 128), cluster, "");
  EXPECT_NE(plain.strategy.data_sync, DataSync::kSwitch);
  cluster.switch_sums = true;
  const JobPlan sums = Best(Job("gpt2-xl", 128), cluster, "");
  EXPECT_EQ(sums.strategy.data_sync, DataSync::kSwitch);
  EXPECT_LT(sums.predicted.iteration, plain.predicted.iteration);
  EXPECT_THAT(sums.why, Contains(HasSubstr("not data_sync=hierarchical: +")));
  const CostModel model = CostModel::Make(Job("gpt2-xl", 128), SlowNics()).value();
  EXPECT_THAT(model.WhyIllegal({.dp = 128, .data_sync = DataSync::kSwitch}).value_or(""), HasSubstr("switch_sums"));
}

// One GPU per node and long ways: two messages beat a ring's 2 · 63 steps.
TEST(ExchangeChoice, ParameterServersWinWhereLatencyRules) {
  ClusterSpec cluster = FindClusterPreset("dgx-h100", 64).value();
  cluster.gpus_per_node = 1;
  cluster.nic_latency = Seconds(200e-6);
  const JobPlan plan = Best(Job("gpt2", 64), cluster, "");
  EXPECT_EQ(plan.strategy.data_sync, DataSync::kParameterServer);
  EXPECT_THAT(plan.why, Contains(HasSubstr("not data_sync=ring: +")));
}

TEST(ExchangeChoice, UnknownWordsAndImpossibleMixturesAreNamed) {
  EXPECT_THAT(ParseTrainingChanges("gossip,slow").error().message(), HasSubstr("allow \"slow\": expected low_precision, local_steps or gossip"));
  const CostModel model = CostModel::Make(Job("gpt2-xl", 128), SlowNics()).value();
  EXPECT_THAT(model.WhyIllegal({.dp = 128, .zero_stage = 1, .local_steps = 4}).value_or(""), HasSubstr("expected two replicas"));
  // Copies of experts inside a replica see different tokens of one sample: they sum in every step.
  const CostModel moe = CostModel::Make({.name = "m", .model = FindModelPreset("mixtral-8x7b").value(), .global_batch = 64, .sequence = 1024,
                                         .gpus = 128}, SlowNics()).value();
  EXPECT_THAT(moe.WhyIllegal({.dp = 32, .tp = 4, .local_steps = 4}).value_or(""), HasSubstr("etp=tp"));
  EXPECT_EQ(moe.WhyIllegal({.dp = 32, .tp = 4, .etp = 4, .local_steps = 4}), std::nullopt);
  EXPECT_EQ(model.WhyIllegal({.dp = 128, .zero_stage = 1, .gradient_wire = GradientWire::kBf16}), std::nullopt);
  EXPECT_THAT(WhyCannotRun(Framework::kMegatron, {Job("gpt2-xl", 128), SlowNics(), {.dp = 128, .gradient_wire = GradientWire::kFp8}}).value_or(""),
              HasSubstr("gradient_wire=fp8"));
}

}  // namespace
}  // namespace weft::planner

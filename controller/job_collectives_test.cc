#include "controller/job_collectives.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/job_planner.h"
#include "netplugin/abi/collective_table.h"

namespace weft::controller {
namespace {

using ::testing::HasSubstr;

planner::ClusterSpec CpuHosts(double latency_s) {
  planner::ClusterSpec cluster = *planner::FindClusterPreset("dgx-a100", 1);
  cluster.device = *planner::FindDevice("cpu");
  cluster.gpus_per_node = 1;
  cluster.nic_rate = MegabitsPerSecond(100);
  cluster.nic_latency = Seconds(latency_s);
  return cluster;
}

abi::CollectiveTable Parse(const std::string& text) {
  abi::CollectiveTable table;
  size_t at = 0;
  EXPECT_EQ(abi::ParseCollectiveTable(text.data(), text.size(), &table, &at), nullptr) << text << " at " << at;
  return table;
}

// Ring: 2 (n-1) a + 2 (n-1)/n S b; fewer steps win while a counts, so for small buffers only.
TEST(JobCollectives, OwnRuntimeLeavesTheRingForSmallBuffersOnly) {
  const auto choices =
      ChooseCollectives({.ranks = 8, .nodes = 8, .own_runtime = true, .cluster = CpuHosts(1e-3), .node_rate = {}});
  ASSERT_TRUE(choices.has_value()) << choices.error().message();
  ASSERT_FALSE(choices->empty());
  EXPECT_EQ(choices->front().least_bytes(), 0);
  EXPECT_GT(choices->back().most_bytes(), 0) << "large buffers keep the ring";
  EXPECT_THAT(choices->front().why(), HasSubstr("us, ring "));
  const abi::CollectiveTable table = Parse(*CollectiveTableText(*choices));
  EXPECT_NE(abi::FindCollective(table, {.bytes = 100, .ranks = 8, .nccl = false}), nullptr);
  EXPECT_EQ(abi::FindCollective(table, {.bytes = 1 << 30, .ranks = 8, .nccl = false}), nullptr);
}

TEST(JobCollectives, TwoRanksHaveNothingToChoose) {
  const auto choices =
      ChooseCollectives({.ranks = 2, .nodes = 2, .own_runtime = true, .cluster = CpuHosts(1e-3), .node_rate = {}});
  ASSERT_TRUE(choices.has_value());
  EXPECT_TRUE(choices->empty());
}

TEST(JobCollectives, NcclIsToldOfASlowNetwork) {
  CollectiveJob job{.ranks = 64, .nodes = 8, .own_runtime = false, .cluster = *planner::FindClusterPreset("dgx-a100", 8),
                    .node_rate = {}};
  ASSERT_TRUE(ChooseCollectives(job).has_value());
  const std::string as_assumed = *CollectiveTableText(*ChooseCollectives(job));
  job.node_rate = GigabitsPerSecond(50);  // of 8 x 200
  const auto slow = ChooseCollectives(job);
  ASSERT_TRUE(slow.has_value()) << slow.error().message();
  ASSERT_FALSE(slow->empty());
  EXPECT_NE(*CollectiveTableText(*slow), as_assumed);
  EXPECT_THAT(slow->front().why(), HasSubstr("NCCL's own choice"));
  for (const v1::CollectiveChoice& choice : *slow) {
    EXPECT_EQ(choice.ranks(), 64);
    EXPECT_EQ(choice.nodes(), 8);
  }
  const abi::CollectiveTable table = Parse(*CollectiveTableText(*slow));
  EXPECT_EQ(table.count, slow->size());
  for (uint32_t i = 0; i < table.count; ++i) {
    EXPECT_LT(static_cast<uint32_t>(table.entries[i].algorithm), abi::kNcclAlgorithms);
  }
}

TEST(JobCollectives, WhatTheTableHasNoWordForIsRefused) {
  v1::CollectiveChoice choice;
  choice.set_collective("allreduce");
  choice.set_ranks(4);
  choice.set_algorithm("carrier-pigeon");
  const auto text = CollectiveTableText({choice});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(text.error().message(), HasSubstr("allreduce carrier-pigeon"));
  const auto many = CollectiveTableText(std::vector<v1::CollectiveChoice>(65, choice));
  EXPECT_EQ(many.error().code(), Code::kResourceExhausted);
}

TEST(JobCollectives, TravelsInTheLaunchEnvironmentOfAJob) {
  v1::JobSpec spec;
  spec.set_job_id("j");
  spec.set_framework("weft-train");
  for (int i = 1; i <= 8; ++i) spec.add_hosts(fmt::format("h{}", i));
  JobPlannerOptions options;
  options.cluster = CpuHosts(1e-3);
  const auto planned = PlanJob(spec, {}, options);
  ASSERT_TRUE(planned.has_value());
  const auto text = planned->plan.environment().find("WEFT_COLLECTIVES");
  ASSERT_NE(text, planned->plan.environment().end());
  EXPECT_EQ(Parse(text->second).count, static_cast<uint32_t>(planned->plan.collectives_size()));
  spec.set_framework("");
  EXPECT_FALSE(PlanJob(spec, {}, options)->plan.environment().contains("WEFT_COLLECTIVES")) << "who would read it?";
}

}  // namespace
}  // namespace weft::controller

#include "controller/job_collectives.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "controller/job_network.h"
#include "controller/job_planner.h"
#include "netplugin/abi/collective_table.h"
#include "planner/collectives/choice.h"
#include "planner/collectives/nccl_model.h"

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

/// What NCCL's own table and the network say of one collective of 64 ranks on 8 A100 hosts.
struct NcclCase {
  planner::Collective collective;
  Bytes bytes;
  std::string own;                                    // algorithm and protocol that NCCL takes by itself
  std::vector<std::pair<std::string, double>> cells;  // what each cell of its table takes there, fastest first

  double TimeOf(const std::string& cell) const {
    for (const auto& [name, seconds] : cells) {
      if (name == cell) return seconds;
    }
    ADD_FAILURE() << "no cell " << cell;
    return 0;
  }
};

std::string CellName(planner::Algorithm algorithm, planner::Protocol protocol) {
  std::string name = fmt::format("{} {}", planner::NcclAlgorithmName(algorithm), planner::NcclProtocolName(protocol));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::vector<NcclCase> CasesOn(const CollectiveJob& job) {
  // Eight NICs of 200 Gbit/s, one for each GPU.
  const planner::ChannelSpeed speed = planner::ChannelsOf(planner::GpuGeneration::kAmpere, 8, 8, GigabitsPerSecond(200));
  const planner::NcclGraph graph{.generation = planner::GpuGeneration::kAmpere, .ranks = 64, .nodes = 8, .channels = speed.channels,
                                 .inside_gbs = speed.inside_gbs, .across_gbs = speed.across_gbs, .nvswitch = true};
  const planner::GroupNetwork network = JobNetwork(job.cluster, 8, job.node_rate, planner::CollectiveLibrary::kNccl);
  std::vector<NcclCase> cases;
  for (const planner::Collective collective :
       {planner::Collective::kAllReduce, planner::Collective::kAllGather, planner::Collective::kReduceScatter}) {
    for (int64_t bytes = 1 << 10; bytes <= int64_t{1} << 30; bytes *= 2) {
      const std::vector<planner::NcclEntry> table = planner::NcclTable(graph, collective, Bytes(bytes));
      NcclCase& one = cases.emplace_back(NcclCase{.collective = collective, .bytes = Bytes(bytes)});
      one.own = CellName(table.front().algorithm, table.front().protocol);
      for (const planner::NcclCost& cell : planner::CellsOn(network, {64, 1}, collective, Bytes(bytes), table)) {
        one.cells.emplace_back(CellName(cell.algorithm, cell.protocol), cell.time.count());
      }
    }
  }
  return cases;
}

// A size has an entry where another cell is a tenth faster than NCCL's own choice on what the links really give, and no other
// size has; the entry is the fastest cell. On the slow network such entries save time that the ones for the network that NCCL
// assumes do not.
TEST(JobCollectives, NcclIsToldOfASlowNetworkWhereItsOwnChoiceIsATenthSlower) {
  CollectiveJob job{.ranks = 64, .nodes = 8, .own_runtime = false, .cluster = *planner::FindClusterPreset("dgx-a100", 8),
                    .node_rate = {}};
  const auto told = [](const std::vector<v1::CollectiveChoice>& choices, const NcclCase& one) {
    std::string cell;
    for (const v1::CollectiveChoice& choice : choices) {
      const int64_t most = choice.most_bytes() > 0 ? choice.most_bytes() : std::numeric_limits<int64_t>::max();
      const bool covers = choice.collective() == planner::CollectiveName(one.collective) &&
                          one.bytes.count() >= choice.least_bytes() && one.bytes.count() <= most;
      if (covers) cell = choice.algorithm() + " " + choice.protocol();
    }
    return cell;
  };
  std::vector<v1::CollectiveChoice> as_assumed;
  for (const bool slow : {false, true}) {
    if (slow) job.node_rate = GigabitsPerSecond(50);  // of 8 x 200
    const auto choices = ChooseCollectives(job);
    ASSERT_TRUE(choices.has_value()) << choices.error().message();
    int entries = 0, better = 0;
    for (const NcclCase& one : CasesOn(job)) {
      SCOPED_TRACE(fmt::format("{} of {} bytes, slow {}", planner::CollectiveName(one.collective), one.bytes.count(), slow));
      const auto& [fastest, time] = one.cells.front();
      const double own = one.TimeOf(one.own);
      const std::string cell = told(*choices, one);
      EXPECT_EQ(cell, 1.1 * time < own ? fastest : "");
      entries += cell.empty() ? 0 : 1;
      if (!slow) continue;
      const std::string before = told(as_assumed, one);
      const double with = one.TimeOf(cell.empty() ? one.own : cell), without = one.TimeOf(before.empty() ? one.own : before);
      EXPECT_LE(with, 1.1 * without);
      better += 1.1 * with < without ? 1 : 0;
    }
    EXPECT_GT(entries, 0);
    if (!slow) as_assumed = *choices;
    else EXPECT_GT(better, 0) << "sizes that only a look at the links helps";
  }
}

TEST(JobCollectives, NcclsTableIsWrittenAsThePluginReadsIt) {
  const CollectiveJob job{.ranks = 64, .nodes = 8, .own_runtime = false, .cluster = *planner::FindClusterPreset("dgx-a100", 8),
                          .node_rate = GigabitsPerSecond(50)};
  const auto slow = ChooseCollectives(job);
  ASSERT_TRUE(slow.has_value()) << slow.error().message();
  ASSERT_FALSE(slow->empty());
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
  spec.set_framework("weft-train-ddp");
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

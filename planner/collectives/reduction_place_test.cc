#include "planner/collectives/reduction_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "planner/collectives/grouping.h"
#include "planner/fabric/fabrics.h"

namespace weft::planner::inline collectives {
namespace {

using namespace literals;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

/// 8 hosts of 8 GPUs with NVLink and 8 NICs of 50 GB/s.
ReductionSite Site() {
  return {.hosts = 8, .network = {.gpus_per_node = 8, .intra_rate = 200e9, .nic_rate = 50e9, .intra_latency = 2e-6,
                                  .nic_latency = 10e-6, .direct_intra_rate = 200e9}};
}

ReductionPlace Best(const ReductionSite& site, Bytes bytes) {
  const auto places = PlaceReduction(site, bytes);
  EXPECT_TRUE(places) << places.error().message();
  return places->front().place;
}

TEST(PlaceReduction, StaysOnTheGpusWhereThereIsNothingElse) {
  const auto places = PlaceReduction(Site(), 1_GiB);
  ASSERT_TRUE(places);
  ASSERT_EQ(places->size(), 1u);
  // Inside 2 · 7/8 S / 200 GB/s and 14 steps; across 14 · (10 us + S / 8 / 400 GB/s).
  const double s = 1073741824.0;
  EXPECT_NEAR(places->front().time.count(), 1.75 * s / 200e9 + 28e-6 + 14 * (10e-6 + s / 3.2e12), 1e-9);
}

// Large data: as many fast spare machines as hosts halve the wire; slow CPUs are worse than no CPUs.
TEST(PlaceReduction, GoesToSpareMachinesWhoseCpusAreFast) {
  ReductionSite site = Site();
  site.spare_machines = 8;
  site.cpu_sum = GigabytesPerSecond(500);
  EXPECT_EQ(Best(site, 1_GiB), ReductionPlace::kSpareCpus);
  site.cpu_sum = GigabytesPerSecond(30);
  EXPECT_EQ(Best(site, 1_GiB), ReductionPlace::kGpus);
  const auto places = PlaceReduction(site, 1_GiB);
  ASSERT_TRUE(places);
  EXPECT_THAT(*places, Contains(Field(&PlacedReduction::why, HasSubstr("own CPUs: 8 machines"))));
}

// Many hosts and little data: two steps to servers on the own hosts instead of 2 · 63 around the ring.
TEST(PlaceReduction, GoesToTheOwnCpusWhereLatencyRules) {
  ReductionSite site = Site();
  site.hosts = 64;
  site.cpu_sum = GigabytesPerSecond(30);
  EXPECT_EQ(Best(site, 1_MiB), ReductionPlace::kOwnCpus);
  EXPECT_EQ(Best(site, 4_GiB), ReductionPlace::kGpus) << "then the CPUs are too slow";
}

TEST(PlaceReduction, GoesIntoTheSwitchesIfTheirTreesAreFastEnough) {
  ReductionSite site = Site();
  site.switches = {.trees = 1, .levels = 2, .tree_rate = GigabytesPerSecond(400), .hop_latency = Seconds(1e-6)};
  EXPECT_EQ(Best(site, 1_GiB), ReductionPlace::kSwitches);
  site.switches.tree_rate = GigabytesPerSecond(100);
  EXPECT_EQ(Best(site, 1_GiB), ReductionPlace::kGpus);
}

TEST(PlaceReduction, RefusesASiteWithoutNics) {
  ReductionSite site = Site();
  site.network.nic_rate = 0;
  const auto places = PlaceReduction(site, 1_MiB);
  ASSERT_FALSE(places);
  EXPECT_EQ(places.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(places.error().message(), HasSubstr("8 hosts of 8 GPUs"));
}

// Two trees for four jobs: those that gain most, weighted; the third takes its next best place, the last gains nothing.
TEST(AssignTrees, TheQuotaGoesToWhoGainsMostUntilItIsSpent) {
  const std::vector<TreeWish> jobs = {{8, Seconds(2), Seconds(1)}, {64, Seconds(2), Seconds(1)},
                                      {8, Seconds(5), Seconds(2)}, {512, Seconds(1), Seconds(1)}};
  EXPECT_THAT(AssignTrees(jobs, 2), ElementsAre(false, true, true, false));
  EXPECT_THAT(AssignTrees(jobs, 9), ElementsAre(true, true, true, false));
  EXPECT_THAT(AssignTrees(jobs, 0), ElementsAre(false, false, false, false));
}

TEST(AssignTrees, IsTheBestOfAllAssignments) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<TreeWish> jobs;
    for (size_t j = 0; j < 1 + random() % 8; ++j) {
      jobs.push_back({static_cast<double>(random() % 9), Seconds(random() % 7), Seconds(random() % 7)});
    }
    const auto trees = static_cast<int32_t>(random() % 5);
    const auto total = [&](const auto& gets) {
      double sum = 0;
      for (size_t j = 0; j < jobs.size(); ++j) sum += gets(j) ? jobs[j].weight * (jobs[j].without - jobs[j].with).count() : 0;
      return sum;
    };
    double best = 0;
    for (uint32_t set = 0; set < uint32_t{1} << jobs.size(); ++set) {
      if (std::popcount(set) <= trees) best = std::max(best, total([&](size_t j) { return (set >> j & 1) != 0; }));
    }
    const std::vector<bool> gets = AssignTrees(jobs, trees);
    EXPECT_NEAR(total([&](size_t j) { return static_cast<bool>(gets[j]); }), best, 1e-9) << seed;
  }
}

// ---- levels

std::vector<NodeId> Gpus(const Cluster& cluster) {
  std::vector<NodeId> gpus;
  for (const ClusterHost& host : cluster.hosts) gpus.insert(gpus.end(), host.gpus.begin(), host.gpus.end());
  return gpus;
}

GroupingCost BestGrouping(const Cluster& cluster, Bytes bytes) {
  const auto costs = ChooseGrouping(cluster.topology, Gpus(cluster), Collective::kAllReduce, bytes);
  EXPECT_TRUE(costs) << costs.error().message();
  return costs->front();
}

Cluster Servers(ServerSpec server, int hosts = 4) {
  return RailOptimised({.hosts = hosts, .rails = server.nics, .hosts_per_group = hosts, .spines = 2,
                        .host_rate = server.nic, .server = server});
}

// NVLink is 9 times a NIC: sums stay in the host first. Each GPU then has a rail of its own across hosts.
TEST(ChooseGrouping, OneGroupPerHostWhereNvlinkIsFast) {
  const GroupingCost best = BestGrouping(Servers(DgxH100()), 256_MiB);
  EXPECT_EQ(ToString(best.spec), "hierarchical:8");
  EXPECT_NEAR(best.outer.value(), 400e9, 1e6) << "the NIC, not shared with anybody";
  EXPECT_NEAR(best.inner.value(), 3.6e12, 1e9);
}

// Without NVLink two GPUs below one PCIe switch have it to themselves; eight send 2 · 6/7 of their data over each switch's
// way to the socket.
TEST(ChooseGrouping, APcieBoxIsCutBelowItsSwitches) {
  ServerSpec box = DgxA100();
  box.nvlink = BitsPerSecond(0);
  const Cluster cluster = Servers(box);
  const auto costs = ChooseGrouping(cluster.topology, Gpus(cluster), Collective::kAllReduce, 256_MiB);
  ASSERT_TRUE(costs) << costs.error().message();
  const auto of = [&](std::string_view name) {
    return std::find_if(costs->begin(), costs->end(), [&](const GroupingCost& c) { return ToString(c.spec) == name; });
  };
  EXPECT_NEAR(of("hierarchical:8")->inner / of("hierarchical:2")->inner, 7.0 / 12, 1e-6);
  EXPECT_NE(ToString(costs->front().spec), "hierarchical:8");
}

// A NIC at a tenth of its rate is left alone: its GPU shares the NIC next to it, which paces all others at half a NIC.
TEST(ChooseGrouping, ASlowNicCountsForWhatItGives) {
  Cluster cluster = Servers(DgxH100());
  const GroupingCost before = BestGrouping(cluster, 256_MiB);
  const NodeId nic = cluster.hosts[1].ports[3];
  for (size_t l = 0; l < cluster.topology.links().size(); ++l) {
    const Link& link = cluster.topology.links()[l];
    if (link.kind == LinkKind::kNetwork && (link.from == nic || link.to == nic)) {
      cluster.topology.SetCapacity(LinkId(static_cast<int32_t>(l)), GigabitsPerSecond(40));
    }
  }
  const GroupingCost after = BestGrouping(cluster, 256_MiB);
  EXPECT_NEAR(after.outer.value(), 200e9, 1e6);
  EXPECT_GT(after.time, before.time);
}

TEST(ChooseGrouping, NamesRanksThatCannotReachEachOther) {
  Topology topology;
  const std::vector<NodeId> gpus = {topology.AddNode("a", NodeKind::kGpu), topology.AddNode("b", NodeKind::kGpu)};
  const auto costs = ChooseGrouping(topology, gpus, Collective::kAllReduce, 1_MiB);
  ASSERT_FALSE(costs);
  EXPECT_EQ(costs.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(costs.error().message(), HasSubstr("no path from a to b"));
}

}  // namespace
}  // namespace weft::planner::collectives

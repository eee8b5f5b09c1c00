#include "planner/fabric/fabrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/fabric/min_cut.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/fabric/testing/link_names.h"

namespace weft::planner::inline fabric {
namespace {

using testing::Names;
using ::testing::ElementsAre;

/// Capacity from the hosts [0, n/2) to the others: the least cut that separates them, each host counting as one unit of which
/// nothing is lost inside.
BitsPerSecond Bisection(const Cluster& cluster) {
  const Topology& topology = cluster.topology;
  const size_t first_half = topology.nodes().size(), second_half = first_half + 1;
  MinCut cut(second_half + 1);
  for (const Link& link : topology.links()) {
    if (link.kind != LinkKind::kNetwork) continue;
    cut.AddEdge(link.from.index(), link.to.index(), std::llround(link.capacity.value()));
  }
  for (size_t h = 0; h < cluster.hosts.size(); ++h) {
    for (const NodeId port : cluster.hosts[h].ports) {
      if (h < cluster.hosts.size() / 2) cut.AddEdge(first_half, port.index(), MinCut::kUncuttable);
      else cut.AddEdge(port.index(), second_half, MinCut::kUncuttable);
    }
  }
  cut.SourceSide(first_half, second_half);
  return BitsPerSecond(static_cast<double>(cut.value()));
}

int64_t Count(const Topology& topology, NodeKind kind) {
  return std::ranges::count(topology.nodes(), kind, &Node::kind);
}

// 4 pods × (2 leaves + 2 aggregations) + 4 cores; cables: 16 hosts, 4 × 2 × 2 in pods, 4 × 2 × 2 to cores.
TEST(ThreeTierClos, HasTheCablesOfItsTiers) {
  const Cluster cluster = ThreeTierClos({});
  EXPECT_EQ(cluster.hosts.size(), 16u);
  EXPECT_EQ(Count(cluster.topology, NodeKind::kSwitch), 20);
  EXPECT_EQ(cluster.topology.links().size(), 2u * (16 + 16 + 16));
  // Half of 16 hosts of 400 Gbit/s, and the cores carry as much: 2 pods × 2 × 2 cables of 400.
  EXPECT_EQ(Bisection(cluster), GigabitsPerSecond(3200));
}

// Same leaf: 1. Same pod: one per aggregation switch. Other pod: aggregation and its cores, 2 × 2.
TEST(ThreeTierClos, PathsMultiplyWithTheTiers) {
  const Cluster cluster = ThreeTierClos({});
  const auto paths = [&](size_t a, size_t b) {
    return cluster.topology.ShortestPaths(cluster.hosts[a].gpus[0], cluster.hosts[b].gpus[0]);
  };
  EXPECT_EQ(paths(0, 1).size(), 1u);
  EXPECT_EQ(paths(0, 2).size(), 2u);
  EXPECT_EQ(paths(0, 4).size(), 4u);
  EXPECT_EQ(paths(0, 4)[0].size(), 6u);
}

TEST(ThreeTierClos, OversubscriptionShowsInTheBisection) {
  EXPECT_EQ(Bisection(ThreeTierClos({.core_rate = GigabitsPerSecond(100)})), GigabitsPerSecond(800));
}

TEST(RailOptimised, ARailStaysOnItsLeafWithinAGroup) {
  const Cluster cluster = RailOptimised({.hosts = 4, .hosts_per_group = 2, .spines = 4, .server = DgxH100()});
  const Topology& topology = cluster.topology;
  EXPECT_EQ(Count(topology, NodeKind::kSwitch), 2 * 8 + 4);
  EXPECT_EQ(Count(topology, NodeKind::kGpu), 32);
  const auto same_rail = topology.ShortestPaths(cluster.hosts[0].ports[3], cluster.hosts[1].ports[3]);
  ASSERT_EQ(same_rail.size(), 1u);
  EXPECT_THAT(Names(topology, same_rail[0]), ElementsAre("h1/nic3->rail1-4", "rail1-4->h2/nic3"));
  EXPECT_EQ(topology.ShortestPaths(cluster.hosts[0].ports[3], cluster.hosts[2].ports[3]).size(), 4u) << "one per spine";
}

TEST(RailOptimised, AGpuReachesAnotherHostThroughTheNicNextToIt) {
  const Cluster cluster = RailOptimised({.hosts = 2, .server = DgxH100()});
  const auto paths = cluster.topology.ShortestPaths(cluster.hosts[0].gpus[0], cluster.hosts[1].gpus[0]);
  // GPUs 0 and 1 share a PCIe switch with NICs 0 and 1: two rails are equally near.
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_THAT(Names(cluster.topology, paths[0]),
              ElementsAre("h1/gpu0->h1/pcie0", "h1/pcie0->h1/nic0", "h1/nic0->rail1-1", "rail1-1->h2/nic0",
                          "h2/nic0->h2/pcie0", "h2/pcie0->h2/gpu0"));
}

TEST(DualPlane, AFlowStaysInItsPlane) {
  const Cluster cluster = DualPlane({});
  const auto paths = cluster.topology.ShortestPaths(cluster.hosts[0].gpus[0], cluster.hosts[7].gpus[0]);
  EXPECT_EQ(paths.size(), 8u) << "4 spines in each of 2 planes";
  for (const auto& path : paths) {
    const std::vector<std::string> names = Names(cluster.topology, path);
    const bool a = names[0].find("a-") != std::string::npos;
    for (const std::string& name : names) EXPECT_EQ(name.find(a ? "b-" : "a-"), std::string::npos) << name;
  }
  EXPECT_EQ(Bisection(cluster), GigabitsPerSecond(4 * 2 * 200));
}

// 4 × 4: 32 cables among routers. Halving the first dimension cuts 2 rings of cables: 2 × 4.
TEST(Torus, WrapsAroundInEveryDimension) {
  const Cluster cluster = Torus({});
  const Topology& topology = cluster.topology;
  EXPECT_EQ(topology.links().size(), 2u * (16 + 32));
  EXPECT_TRUE(topology.FindLink(*topology.FindNode("r0-0"), *topology.FindNode("r3-0")));
  EXPECT_TRUE(topology.FindLink(*topology.FindNode("r2-0"), *topology.FindNode("r2-3")));
  EXPECT_EQ(Bisection(cluster), GigabitsPerSecond(8 * 400));
  const auto diagonal = topology.ShortestPaths(cluster.hosts[0].gpus[0], cluster.hosts[5].gpus[0]);
  EXPECT_EQ(diagonal.size(), 2u) << "r0-0 to r1-1: either dimension first";
}

TEST(Torus, ADimensionOfTwoHasOneCable) {
  EXPECT_EQ(Torus({.extent = {2, 2, 2}}).topology.links().size(), 2u * (8 + 12));
  EXPECT_EQ(Torus({.extent = {1}}).topology.links().size(), 2u);
}

TEST(Servers, NvlinkIsPreferredToPcieAndPcieToTheSocketLink) {
  Topology topology;
  const Server server = AddServer(&topology, "n1", DgxA100());
  const auto peers = topology.ShortestPaths(server.gpus[0], server.gpus[1]);
  ASSERT_EQ(peers.size(), 1u) << "they also share a PCIe switch";
  EXPECT_THAT(Names(topology, peers[0]), ElementsAre("n1/gpu0->n1/nvswitch", "n1/nvswitch->n1/gpu1"));
  const auto far_nic = topology.ShortestPaths(server.gpus[0], server.nics[7]);
  ASSERT_EQ(far_nic.size(), 1u);
  EXPECT_THAT(Names(topology, far_nic[0]),
              ElementsAre("n1/gpu0->n1/pcie0", "n1/pcie0->n1/cpu0", "n1/cpu0->n1/cpu1", "n1/cpu1->n1/pcie3",
                          "n1/pcie3->n1/nic7"));
}

// Every V100 has six lanes of 25 GB/s.
TEST(Servers, TheCubeMeshGivesEveryGpuSixLanes) {
  Topology topology;
  const Server server = AddServer(&topology, "n1", DgxV100());
  for (const NodeId gpu : server.gpus) {
    double rate = 0;
    for (const Link& link : topology.links()) {
      if (link.from == gpu && link.kind == LinkKind::kNvlink) rate += link.line_rate.value();
    }
    EXPECT_DOUBLE_EQ(rate, GigabytesPerSecond(150).value());
  }
  EXPECT_EQ(topology.ShortestPaths(server.gpus[0], server.gpus[4])[0].size(), 1u);
}

TEST(Topology, ALinkThatComesBackHasTheCapacityMeasuredMeanwhile) {
  Topology topology = LeafSpine(1, 1, 2, GigabitsPerSecond(1));
  topology.SetHealth(LinkId(0), LinkHealth::kDown);
  EXPECT_EQ(topology.link(LinkId(0)).capacity, BitsPerSecond(0));
  topology.SetCapacity(LinkId(0), MegabitsPerSecond(300));
  EXPECT_EQ(topology.link(LinkId(0)).capacity, BitsPerSecond(0));
  topology.SetHealth(LinkId(0), LinkHealth::kUp);
  EXPECT_EQ(topology.link(LinkId(0)).capacity, MegabitsPerSecond(300));
  EXPECT_EQ(topology.link(LinkId(0)).line_rate, GigabitsPerSecond(1));
}

}  // namespace
}  // namespace weft::planner::fabric

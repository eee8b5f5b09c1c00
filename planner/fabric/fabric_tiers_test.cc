#include "planner/fabric/fabric_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"

namespace weft::planner::inline fabric {
namespace {

std::vector<std::vector<NodeId>> Senders(const Cluster& cluster) {
  std::vector<std::vector<NodeId>> senders;
  for (const ClusterHost& host : cluster.hosts) senders.push_back(host.gpus);
  return senders;
}

/// Nodes of two hosts each, h1 with h2 and so on.
std::vector<std::vector<NodeId>> PairsOfHosts(const Topology& topology, int hosts) {
  std::vector<std::vector<NodeId>> senders;
  for (int h = 1; h < hosts; h += 2) {
    senders.push_back({*topology.FindNode("h" + std::to_string(h)), *topology.FindNode("h" + std::to_string(h + 1))});
  }
  return senders;
}

/// Four hosts under each of four leaves, a cable from each leaf to each spine.
struct Clos {
  Topology topology;
  std::vector<std::vector<NodeId>> senders;

  explicit Clos(int spines) : topology(LeafSpine(4, spines, 4, GigabitsPerSecond(400))) {
    for (int h = 1; h <= 16; ++h) senders.push_back({*topology.FindNode("h" + std::to_string(h))});
  }
};

TEST(FindNodeTiers, LeavesAndSpinesWithWhatTheLeavesLetOut) {
  for (const int spines : {1, 2, 4}) {
    const Clos clos(spines);
    const NodeTiers found = FindNodeTiers(clos.topology, clos.senders);
    ASSERT_EQ(found.tiers.size(), 2u);
    EXPECT_EQ(found.tiers[0].name, "leaf");
    EXPECT_EQ(found.tiers[0].nodes, 4);
    EXPECT_DOUBLE_EQ(found.tiers[0].out.value(), 400e9 * spines / 4);
    EXPECT_EQ(found.tiers[1].name, "spine");
    EXPECT_EQ(found.tiers[1].nodes, 16);
  }
}

// One node under each leaf: what the leaf lets out is what the node has.
TEST(FindNodeTiers, ANodeMayHangOnLessThanItsPorts) {
  const Topology topology = LeafSpine(4, 1, 2, GigabitsPerSecond(400));
  const NodeTiers found = FindNodeTiers(topology, PairsOfHosts(topology, 8));
  EXPECT_DOUBLE_EQ(found.node_out.value(), 400e9) << "of two hosts with 400 Gbit/s each";
  ASSERT_EQ(found.tiers.size(), 1u);
  EXPECT_DOUBLE_EQ(FindNodeTiers(Clos(4).topology, Clos(4).senders).node_out.value(), 400e9);
}

// Nodes of two hosts under leaves of three: no leaf holds all of a node that lies under two of them.
TEST(FindNodeTiers, ANodeUnderTwoLeavesIsInNeither) {
  const Topology topology = LeafSpine(4, 3, 3, GigabitsPerSecond(400));
  const NodeTiers found = FindNodeTiers(topology, PairsOfHosts(topology, 12));
  ASSERT_EQ(found.tiers.size(), 1u);
  EXPECT_EQ(found.tiers[0].nodes, 6);
}

TEST(FindNodeTiers, TheNarrowestUnitCountsForAll) {
  Clos clos(4);
  const auto uplink = clos.topology.FindLink(*clos.topology.FindNode("leaf3"), *clos.topology.FindNode("spine2"));
  clos.topology.SetHealth(*uplink, LinkHealth::kDown);
  EXPECT_DOUBLE_EQ(FindNodeTiers(clos.topology, clos.senders).tiers[0].out.value(), 300e9);
}

TEST(FindNodeTiers, ThreeTiersByTheirOwnNames) {
  const Cluster cluster = ThreeTierClos({.pods = 2, .leaves_per_pod = 2, .aggregations_per_pod = 2, .cores_per_aggregation = 1,
                                         .hosts_per_leaf = 4, .core_rate = GigabitsPerSecond(200)});
  const NodeTiers found = FindNodeTiers(cluster.topology, Senders(cluster));
  ASSERT_EQ(found.tiers.size(), 3u);
  EXPECT_EQ(found.tiers[0].name, "leaf");
  EXPECT_EQ(found.tiers[1].name, "agg");
  EXPECT_EQ(found.tiers[1].nodes, 8);
  EXPECT_DOUBLE_EQ(found.tiers[1].out.value(), 2 * 200e9 / 8);
  EXPECT_EQ(found.tiers[2].name, "core");
}

TEST(FindNodeTiers, NodesOfOneLeafFollowEachOther) {
  Clos clos(2);
  std::swap(clos.senders[1], clos.senders[9]);  // one of leaf 1 for one of leaf 3
  const std::vector<int32_t> order = FindNodeTiers(clos.topology, clos.senders).order;
  EXPECT_THAT(order, testing::UnorderedElementsAreArray({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  std::vector<size_t> place(16);
  for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = i;
  EXPECT_EQ(place[0] / 4, place[9] / 4) << "h1 and h2 are under one leaf";
  EXPECT_EQ(place[1] / 4, place[8] / 4) << "h10 and h9 are under one leaf";
}

TEST(FindUnjoinedNode, WhatHasNoWayToTheOthersOrBack) {
  Clos clos(1);
  EXPECT_EQ(FindUnjoinedNode(clos.topology, clos.senders), std::nullopt);
  const NodeId leaf = *clos.topology.FindNode("leaf3"), spine = *clos.topology.FindNode("spine1");
  clos.topology.SetHealth(*clos.topology.FindLink(leaf, spine), LinkHealth::kDown);
  EXPECT_EQ(FindUnjoinedNode(clos.topology, clos.senders), 8u) << "leaf3's hosts cannot send";
  clos.topology.SetHealth(*clos.topology.FindLink(leaf, spine), LinkHealth::kUp);
  clos.topology.SetHealth(*clos.topology.FindLink(spine, leaf), LinkHealth::kDown);
  EXPECT_EQ(FindUnjoinedNode(clos.topology, clos.senders), 8u) << "leaf3's hosts cannot be reached";
}

TEST(FindNodeTiers, OneNodeIsOneTier) {
  const Topology topology = LeafSpine(1, 1, 1, GigabitsPerSecond(100));
  const NodeTiers found = FindNodeTiers(topology, std::vector<std::vector<NodeId>>{{*topology.FindNode("h1")}});
  ASSERT_EQ(found.tiers.size(), 1u);
  EXPECT_EQ(found.tiers[0].nodes, 1);
}

}  // namespace
}  // namespace weft::planner::fabric

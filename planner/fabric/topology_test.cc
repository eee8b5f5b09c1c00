#include "planner/fabric/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/fabric/testing/leaf_spine.h"
#include "planner/fabric/testing/link_names.h"

namespace weft::planner::inline fabric {
namespace {

using testing::Names;
using ::testing::ElementsAre;

NodeId At(const Topology& topology, const char* name) { return topology.FindNode(name).value(); }

TEST(Topology, ANodeIsAddedOnce) {
  Topology topology;
  const NodeId first = topology.AddNode("h1", NodeKind::kHost);
  EXPECT_EQ(topology.AddNode("h1", NodeKind::kSwitch), first);
  EXPECT_EQ(topology.node(first).kind, NodeKind::kHost);
  EXPECT_EQ(topology.nodes().size(), 1u);
  EXPECT_FALSE(topology.FindNode("h2"));
}

TEST(Topology, ALinkKeepsItsLineRateWhenItsCapacityFalls) {
  Topology topology = LeafSpine(1, 1, 2, MegabitsPerSecond(100));
  const LinkId link = topology.FindLink(At(topology, "h1"), At(topology, "leaf1")).value();
  topology.SetCapacity(link, MegabitsPerSecond(20));
  EXPECT_EQ(topology.link(link).line_rate, MegabitsPerSecond(100));
  EXPECT_EQ(topology.link(link).capacity, MegabitsPerSecond(20));
  EXPECT_EQ(topology.LinkName(link), "h1->leaf1");
}

TEST(Topology, LeafSpineHasACablePerHostAndPerPairOfSwitches) {
  const Topology topology = LeafSpine(2, 3, 4, GigabitsPerSecond(1));
  EXPECT_EQ(topology.nodes().size(), 2u + 3 + 8);
  EXPECT_EQ(topology.links().size(), 2u * (8 + 6));
  EXPECT_TRUE(topology.FindLink(At(topology, "h5"), At(topology, "leaf2")));
  EXPECT_FALSE(topology.FindLink(At(topology, "h4"), At(topology, "leaf2")));
}

TEST(ShortestPaths, OnePerSpineInOrderBetweenLeaves) {
  const Topology topology = LeafSpine(2, 2, 2, GigabitsPerSecond(1));
  const auto paths = topology.ShortestPaths(At(topology, "h1"), At(topology, "h3"));
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_THAT(Names(topology, paths[0]), ElementsAre("h1->leaf1", "leaf1->spine1", "spine1->leaf2", "leaf2->h3"));
  EXPECT_THAT(Names(topology, paths[1]), ElementsAre("h1->leaf1", "leaf1->spine2", "spine2->leaf2", "leaf2->h3"));
  EXPECT_LT(paths[0], paths[1]);
}

TEST(ShortestPaths, StayBelowOneLeafAndWithinTheLimit) {
  const Topology topology = LeafSpine(2, 8, 2, GigabitsPerSecond(1));
  const auto near = topology.ShortestPaths(At(topology, "h1"), At(topology, "h2"));
  ASSERT_EQ(near.size(), 1u);
  EXPECT_THAT(Names(topology, near[0]), ElementsAre("h1->leaf1", "leaf1->h2"));
  EXPECT_EQ(topology.ShortestPaths(At(topology, "h1"), At(topology, "h3"), 5).size(), 5u);
}

TEST(ShortestPaths, NeverPassThroughAHost) {
  // A host with two cables would shorten the way from a to c.
  Topology topology;
  const NodeId a = topology.AddNode("a", NodeKind::kHost), b = topology.AddNode("b", NodeKind::kHost);
  const NodeId c = topology.AddNode("c", NodeKind::kHost);
  topology.AddCable(a, b, GigabitsPerSecond(1));
  topology.AddCable(b, c, GigabitsPerSecond(1));
  EXPECT_TRUE(topology.ShortestPaths(a, c).empty());
  EXPECT_EQ(topology.ShortestPaths(a, b).size(), 1u);
  EXPECT_TRUE(topology.ShortestPaths(a, a).empty());
}

}  // namespace
}  // namespace weft::planner::fabric

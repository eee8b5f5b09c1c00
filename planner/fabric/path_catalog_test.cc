#include "planner/fabric/path_catalog.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"

namespace weft::planner::inline fabric {
namespace {

void ExpectSamePaths(const Topology& topology, const std::vector<NodeId>& ends, size_t limit) {
  PathCatalog catalog(topology, limit);
  for (const NodeId from : ends) {
    for (const NodeId to : ends) {
      EXPECT_EQ(catalog.Paths(from, to), topology.ShortestPaths(from, to, limit))
          << topology.node(from).name << " to " << topology.node(to).name;
    }
  }
}

std::vector<NodeId> All(const Topology& topology) {
  std::vector<NodeId> nodes;
  for (size_t n = 0; n < topology.nodes().size(); ++n) nodes.emplace_back(static_cast<int32_t>(n));
  return nodes;
}

TEST(PathCatalog, SaysWhatShortestPathsSaysOnEveryFabric) {
  ExpectSamePaths(LeafSpine(3, 4, 2, GigabitsPerSecond(100)), All(LeafSpine(3, 4, 2, GigabitsPerSecond(100))), 64);
  const std::vector<Cluster> clusters = {ThreeTierClos({.pods = 2, .hosts_per_leaf = 1}),
                                         RailOptimised({.hosts = 4, .rails = 2, .hosts_per_group = 2, .spines = 2}),
                                         DualPlane({.hosts = 4, .hosts_per_leaf = 2, .spines_per_plane = 2}),
                                         Torus({.extent = {3, 2}})};
  for (const Cluster& cluster : clusters) {
    for (const size_t limit : {size_t{64}, size_t{3}}) {
      ExpectSamePaths(cluster.topology, All(cluster.topology), limit);
    }
  }
}

TEST(PathCatalog, SaysWhatShortestPathsSaysAmongServers) {
  const Cluster cluster =
      RailOptimised({.hosts = 2, .rails = 4, .hosts_per_group = 1, .spines = 2, .server = DgxV100()});
  std::vector<NodeId> ends = cluster.hosts[0].gpus;
  ends.insert(ends.end(), cluster.hosts[1].gpus.begin(), cluster.hosts[1].gpus.end());
  ends.push_back(cluster.hosts[0].ports[1]);
  ExpectSamePaths(cluster.topology, ends, 64);
}

TEST(PathCatalog, HasNoPathWhereThereIsNone) {
  Topology topology;
  const NodeId a = topology.AddNode("a", NodeKind::kHost), b = topology.AddNode("b", NodeKind::kHost);
  const NodeId s = topology.AddNode("s", NodeKind::kSwitch), t = topology.AddNode("t", NodeKind::kSwitch);
  topology.AddCable(a, s, GigabitsPerSecond(1));
  topology.AddCable(b, t, GigabitsPerSecond(1));
  PathCatalog catalog(topology);
  EXPECT_TRUE(catalog.Paths(a, b).empty());
  EXPECT_TRUE(catalog.Paths(a, a).empty());
}

}  // namespace
}  // namespace weft::planner::fabric

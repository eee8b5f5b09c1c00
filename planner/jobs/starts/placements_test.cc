#include "planner/jobs/starts/placements.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"

namespace weft::planner::inline jobs {
namespace {

std::vector<std::vector<NodeId>> Hosts(const Topology& topology, int count) {
  std::vector<std::vector<NodeId>> hosts;
  for (int h = 1; h <= count; ++h) hosts.push_back({*topology.FindNode("h" + std::to_string(h))});
  return hosts;
}

TEST(PlaceMapTest, FillsTheLeafThatFitsBestAndOffersOthers) {
  const Topology topology = LeafSpine(3, 2, 4, GigabitsPerSecond(100));
  const PlaceMap map(topology, Hosts(topology, 12));
  EXPECT_EQ(map.leaf(0), map.leaf(3));
  EXPECT_NE(map.leaf(3), map.leaf(4));
  // Free: four below leaf 1, two below leaf 2, one below leaf 3.
  std::vector<bool> free(12, false);
  for (const size_t p : {0, 1, 2, 3, 4, 6, 11}) free[p] = true;
  const auto sets = map.Sets(free, 2);
  ASSERT_EQ(sets.size(), 3u);
  EXPECT_EQ(sets[0], (std::vector<size_t>{4, 6}));    // fits exactly
  EXPECT_EQ(sets[1], (std::vector<size_t>{0, 1}));    // most room
  EXPECT_EQ(sets[2], (std::vector<size_t>{0, 4}));    // one below each
}

TEST(PlaceMapTest, SetsAreOfFreePlacesDifferentAndAsLargeAsAsked) {
  const Topology topology = LeafSpine(4, 2, 4, GigabitsPerSecond(100));
  const PlaceMap map(topology, Hosts(topology, 16));
  for (uint32_t mask = 1; mask < 65536; mask += 37) {
    std::vector<bool> free;
    for (size_t p = 0; p < 16; ++p) free.push_back((mask >> p & 1) != 0);
    const auto count = static_cast<int32_t>(std::count(free.begin(), free.end(), true));
    for (int32_t hosts = 1; hosts <= 16; ++hosts) {
      const auto sets = map.Sets(free, hosts);
      EXPECT_EQ(sets.empty(), hosts > count);
      EXPECT_LE(sets.size(), kMostPlacements);
      std::set<std::vector<size_t>> different(sets.begin(), sets.end());
      EXPECT_EQ(different.size(), sets.size());
      for (const std::vector<size_t>& set : sets) {
        std::set<size_t> places(set.begin(), set.end());
        EXPECT_EQ(places.size(), static_cast<size_t>(hosts));
        for (const size_t p : set) EXPECT_TRUE(free[p]);
      }
    }
  }
}

TEST(PlaceMapTest, HostsOfAGroupOfRailsLieTogether) {
  const Cluster cluster = RailOptimised({.hosts = 8, .rails = 8, .hosts_per_group = 4, .spines = 2, .server = DgxH100()});
  std::vector<std::vector<NodeId>> hosts;
  for (const ClusterHost& host : cluster.hosts) hosts.push_back(host.gpus);
  const PlaceMap map(cluster.topology, hosts);
  EXPECT_EQ(map.leaf(0), map.leaf(3));
  EXPECT_NE(map.leaf(0), map.leaf(4));
}

}  // namespace
}  // namespace weft::planner::jobs

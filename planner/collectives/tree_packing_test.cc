#include "planner/collectives/tree_packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "planner/collectives/packed_schedule.h"
#include "planner/collectives/testing/interpreter.h"

namespace weft::planner::inline collectives {
namespace {

using ::testing::HasSubstr;
using NodePair = std::pair<int32_t, int32_t>;

std::map<NodePair, int64_t> Capacities(const PackingGraph& graph) {
  std::map<NodePair, int64_t> capacity;
  for (const auto& cable : graph.cables) {
    capacity[{cable.a, cable.b}] += cable.capacity;
    capacity[{cable.b, cable.a}] += cable.capacity;
  }
  return capacity;
}

/// min over node sets that leave a rank out of leaving capacity / ranks inside, by trying all sets.
double BruteForceRatio(const PackingGraph& graph) {
  double best = 1e300;
  for (uint32_t set = 1; set + 1 < uint32_t{1} << graph.nodes; ++set) {
    int32_t inside = 0;
    for (int32_t r = 0; r < graph.ranks; ++r) inside += set >> r & 1;
    if (inside == 0 || inside == graph.ranks) continue;
    int64_t leaving = 0;
    for (const auto& cable : graph.cables) leaving += (set >> cable.a & 1) != (set >> cable.b & 1) ? cable.capacity : 0;
    best = std::min(best, static_cast<double>(leaving) / inside);
  }
  return best;
}

/// Every tree spans, every root has all of its trees, and neither a way between ranks nor a cable carries more than it can.
void ExpectSound(const PackingGraph& graph, const TreePacking& packing) {
  std::map<NodePair, int64_t> used, routed, on_cables;
  std::map<int32_t, int64_t> weight;
  for (const PackedTree& tree : packing.trees) {
    EXPECT_GT(tree.weight, 0);
    weight[tree.root] += tree.weight;
    std::set<int32_t> reached{tree.root};
    for (const auto& [parent, child] : tree.edges) {
      EXPECT_TRUE(reached.contains(parent));
      EXPECT_TRUE(reached.insert(child).second);
      used[{parent, child}] += tree.weight;
    }
    EXPECT_EQ(reached.size(), static_cast<size_t>(graph.ranks));
  }
  for (int32_t rank = 0; rank < graph.ranks; ++rank) EXPECT_EQ(weight[rank], packing.trees_per_root);
  for (const PackedRoute& route : packing.routes) {
    routed[{route.nodes.front(), route.nodes.back()}] += route.capacity;
    for (size_t i = 1; i < route.nodes.size(); ++i) on_cables[{route.nodes[i - 1], route.nodes[i]}] += route.capacity;
  }
  for (const auto& [pair, amount] : used) EXPECT_LE(amount, routed[pair]) << pair.first << "->" << pair.second;
  auto capacity = Capacities(graph);
  for (const auto& [pair, amount] : on_cables) {
    EXPECT_LE(amount, capacity[pair] * packing.scale) << pair.first << "->" << pair.second;
  }
}

TreePacking Pack(const PackingGraph& graph) {
  const auto packing = PackTrees(graph);
  EXPECT_TRUE(packing) << packing.error().message();
  if (packing) ExpectSound(graph, *packing);
  return packing.value_or(TreePacking{});
}

PackingGraph RingGraph(int32_t ranks) {
  PackingGraph graph{.ranks = ranks, .nodes = ranks};
  for (int32_t r = 0; r < ranks; ++r) graph.cables.push_back({r, (r + 1) % ranks, 1});
  return graph;
}

PackingGraph Star(int32_t ranks, int64_t capacity) {
  PackingGraph graph{.ranks = ranks, .nodes = ranks + 1};
  for (int32_t r = 0; r < ranks; ++r) graph.cables.push_back({r, ranks, capacity});
  return graph;
}

// One rank may receive from both sides, so from 5 others: 2 / 5 each.
TEST(TreePacking, ARingReachesTheRateOfItsTwoDirections) {
  EXPECT_DOUBLE_EQ(Pack(RingGraph(6)).rate_per_root(), 2.0 / 5);
}

TEST(TreePacking, BehindOneSwitchEveryRankReceivesAtFullRate) {
  EXPECT_DOUBLE_EQ(Pack(Star(5, 3)).rate_per_root(), 3.0 / 4);
}

// Two islands of 4 with 10 to each rank, joined by one cable of 4 between their switches: 4 ranks share 4.
TEST(TreePacking, TheCableBetweenTwoIslandsIsTheBottleneck) {
  PackingGraph graph{.ranks = 8, .nodes = 10};
  for (int32_t r = 0; r < 8; ++r) graph.cables.push_back({r, 8 + r / 4, 10});
  graph.cables.push_back({8, 9, 4});
  EXPECT_DOUBLE_EQ(Pack(graph).rate_per_root(), 1.0);
}

TEST(TreePacking, TheBottleneckIsTheOneThatTryingAllCutsFinds) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const auto ranks = static_cast<int32_t>(2 + random() % 5);
    PackingGraph graph{.ranks = ranks, .nodes = ranks + static_cast<int32_t>(random() % 4)};
    for (int32_t node = 1; node < graph.nodes; ++node) {
      graph.cables.push_back({static_cast<int32_t>(random() % static_cast<uint32_t>(node)), node, static_cast<int64_t>(1 + random() % 6)});
    }
    for (int extra = 0; extra < 4; ++extra) {
      const auto a = static_cast<int32_t>(random() % static_cast<uint32_t>(graph.nodes));
      const auto b = static_cast<int32_t>(random() % static_cast<uint32_t>(graph.nodes));
      if (a != b) graph.cables.push_back({a, b, static_cast<int64_t>(1 + random() % 6)});
    }
    EXPECT_NEAR(Pack(graph).rate_per_root(), BruteForceRatio(graph), 1e-12) << "round " << round;
  }
}

TEST(TreePacking, SchedulesGiveEveryRankItsResult) {
  for (int32_t ranks = 2; ranks <= 9; ++ranks) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      const auto schedule = PackedGroupsSchedule(collective, ranks, 3);
      ASSERT_TRUE(schedule) << schedule.error().message();
      ASSERT_TRUE(ValidateSchedule(*schedule));
      EXPECT_EQ(testing::WhatIsWrong(*schedule, 0, 11), "") << CollectiveName(collective) << " n=" << ranks;
    }
  }
}

TEST(TreePacking, WhatCannotBePackedIsRefusedByName) {
  const auto message = [](const PackingGraph& graph) {
    const auto packing = PackTrees(graph);
    return packing ? std::string("accepted") : packing.error().message();
  };
  EXPECT_THAT(message({.ranks = 0, .nodes = 0}), HasSubstr("0 ranks"));
  EXPECT_THAT(message({.ranks = 2, .nodes = 2, .cables = {{0, 2, 1}}}), HasSubstr("cable 0-2"));
  EXPECT_THAT(message({.ranks = 2, .nodes = 2, .cables = {{0, 1, 0}}}), HasSubstr("capacity 0"));
  EXPECT_THAT(message({.ranks = 3, .nodes = 4, .cables = {{0, 1, 1}, {2, 3, 1}}}), HasSubstr("cannot reach the others"));
  const auto broadcast = PackedSchedule(Collective::kBroadcast, Pack(Star(3, 1)));
  ASSERT_FALSE(broadcast);
  EXPECT_THAT(broadcast.error().message(), HasSubstr("forest broadcast"));
}

}  // namespace
}  // namespace weft::planner::collectives

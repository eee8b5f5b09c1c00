#include "planner/collectives/algorithm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "planner/collectives/all_to_all.h"
#include "planner/collectives/parameter_server.h"
#include "planner/collectives/schedule_cost.h"
#include "planner/collectives/testing/interpreter.h"
#include "planner/collectives/testing/replay.h"
#include "planner/collectives/tree.h"

namespace weft::planner::inline collectives {
namespace {

/// Edges from the root to the deepest rank.
int32_t Depth(const RankTree& tree) {
  std::vector<int32_t> level(tree.parent.size(), 0);
  int32_t deepest = 0;
  for (const int32_t rank : tree.order) {
    const int32_t above = tree.parent[static_cast<size_t>(rank)];
    if (above >= 0) level[static_cast<size_t>(rank)] = level[static_cast<size_t>(above)] + 1;
    deepest = std::max(deepest, level[static_cast<size_t>(rank)]);
  }
  return deepest;
}

using ::testing::HasSubstr;

constexpr Collective kAll[] = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                               Collective::kAllToAll, Collective::kBroadcast};

Schedule Make(const std::string& name, Collective collective, int32_t ranks, RankId root = RankId(0)) {
  const auto spec = ParseAlgorithm(name);
  EXPECT_TRUE(spec) << spec.error().message();
  auto schedule = MakeSchedule(*spec, collective, ranks, root);
  EXPECT_TRUE(schedule) << name << ": " << schedule.error().message();
  return std::move(*schedule);
}

void ExpectRight(const Schedule& schedule, int32_t root = 0) {
  const Status valid = ValidateSchedule(schedule);
  ASSERT_TRUE(valid) << schedule.algorithm << ": " << valid.error().message();
  for (uint32_t seed = 0; seed < 2; ++seed) {
    ASSERT_EQ(testing::WhatIsWrong(schedule, root, seed), "")
        << schedule.algorithm << " " << CollectiveName(schedule.collective) << " n=" << schedule.rank_count();
  }
}

TEST(Algorithms, EveryOneGivesEveryCollectiveItsResultForTwoToSeventeenRanks) {
  for (const Collective collective : kAll) {
    for (const Algorithm algorithm : AlgorithmsFor(collective)) {
      if (algorithm == Algorithm::kForest) continue;  // tree_packing_test.cc
      for (int32_t ranks = 1; ranks <= 17; ++ranks) {
        const auto schedule = MakeSchedule({algorithm}, collective, ranks);
        ASSERT_TRUE(schedule) << schedule.error().message();
        EXPECT_EQ(schedule->rank_count(), ranks);
        ExpectRight(*schedule);
      }
    }
  }
}

TEST(Algorithms, EveryParameterThatFitsGivesTheResult) {
  for (const int32_t parameter : {1, 2, 3, 4, 7, 12, 20}) {
    const std::string behind = fmt::format(":{}", parameter);
    ExpectRight(Make("hierarchical" + behind, Collective::kAllReduce, 12));
    ExpectRight(Make("hierarchical" + behind, Collective::kAllToAll, 12));
    if (12 % parameter != 0) continue;
    ExpectRight(Make("hierarchical" + behind, Collective::kReduceScatter, 12));
    ExpectRight(Make("torus" + behind, Collective::kAllGather, 12));
    ExpectRight(Make("ps" + behind, Collective::kAllReduce, 12));
  }
  for (int32_t root = 0; root < 6; ++root) {
    ExpectRight(Make("tree", Collective::kBroadcast, 6, RankId(root)), root);
    ExpectRight(Make("pipelined", Collective::kBroadcast, 6, RankId(root)), root);
  }
}

TEST(Algorithms, AreRefusedByNameWhereTheyDoNotFit) {
  const auto parsed = [](const char* text) {
    const auto spec = ParseAlgorithm(text);
    return spec ? std::string("accepted") : spec.error().message();
  };
  EXPECT_THAT(parsed("rings"), HasSubstr("algorithm \"rings\": expected one of ring, tree, halving-doubling"));
  for (const char* text : {"ring:2", "hierarchical:", "hierarchical:0", "torus:-1", "ps:2x", "ps:99999999999"}) {
    EXPECT_THAT(parsed(text), HasSubstr("a positive number behind it")) << text;
  }
  const auto made = [](AlgorithmSpec spec, Collective collective, int32_t ranks) {
    const auto schedule = MakeSchedule(spec, collective, ranks);
    return schedule ? std::string("accepted") : schedule.error().message();
  };
  EXPECT_THAT(made({Algorithm::kTree}, Collective::kAllToAll, 4),
              HasSubstr("\"tree\" for alltoall: expected one of ring, hierarchical, direct, pairwise"));
  EXPECT_THAT(made({Algorithm::kTorus, 5}, Collective::kAllReduce, 12), HasSubstr("width 5, expected a divisor"));
  EXPECT_THAT(made({Algorithm::kHierarchical, 5}, Collective::kAllGather, 12), HasSubstr("expected equal groups"));
  EXPECT_THAT(made({Algorithm::kParameterServer, 5}, Collective::kAllReduce, 4), HasSubstr("5 servers among 4 ranks"));
  EXPECT_THAT(made({Algorithm::kRing}, Collective::kAllReduce, 0), HasSubstr("0 ranks"));
  EXPECT_EQ(ToString(ParseAlgorithm("hierarchical:8").value()), "hierarchical:8");
  EXPECT_EQ(ToString({Algorithm::kTree}), "tree");
}

TEST(DoubleBinaryTree, NoRankIsAnInnerNodeOfBothTrees) {
  for (int32_t ranks = 2; ranks <= 70; ++ranks) {
    const auto trees = DoubleBinaryTree(ranks);
    std::vector<int> inner_of(static_cast<size_t>(ranks), 0);
    for (const RankTree& tree : trees) {
      ASSERT_EQ(tree.order.size(), static_cast<size_t>(ranks));
      std::vector<int> children(static_cast<size_t>(ranks), 0);
      for (const int32_t parent : tree.parent) {
        if (parent >= 0) ++children[static_cast<size_t>(parent)];
      }
      for (size_t r = 0; r < children.size(); ++r) {
        EXPECT_LE(children[r], 2);
        inner_of[r] += children[r] > 0 ? 1 : 0;
      }
      EXPECT_EQ(Depth(tree), static_cast<int32_t>(std::floor(std::log2(ranks))));
    }
    EXPECT_THAT(inner_of, ::testing::Each(::testing::Le(1))) << ranks;
  }
}

// ---- closed forms against the replay

constexpr double kLatency = 5e-6;
CommunicatorShape Equal(int32_t ranks) {
  const LinkCost link{Seconds(kLatency), GigabytesPerSecond(10)};
  return {.ranks = ranks, .group = 0, .inner = link, .outer = link};
}

double Replayed(const std::string& name, Collective collective, const CommunicatorShape& shape, Bytes bytes,
                int32_t slices = 1) {
  const auto time = ReplayTime(Make(name, collective, shape.ranks), shape, bytes, slices);
  EXPECT_TRUE(time) << time.error().message();
  return time->count();
}
double Closed(const std::string& name, Collective collective, const CommunicatorShape& shape, Bytes bytes,
              int32_t slices = 1) {
  const auto time = AlgorithmTime(*ParseAlgorithm(name), collective, NetworkOf(shape), shape.ranks, bytes, slices);
  EXPECT_TRUE(time) << time.error().message();
  return time->count();
}

TEST(ClosedForms, EqualTheReplayOnEqualLinks) {
  const std::pair<const char*, Collective> cases[] = {
      {"ring", Collective::kAllReduce},       {"ring", Collective::kAllGather},   {"ring", Collective::kReduceScatter},
      {"ring", Collective::kBroadcast},       {"ring", Collective::kAllToAll},    {"direct", Collective::kAllReduce},
      {"direct", Collective::kAllGather},     {"direct", Collective::kAllToAll},  {"pairwise", Collective::kAllToAll},
      {"ps", Collective::kAllReduce},         {"halving-doubling", Collective::kAllReduce},   {"pipelined", Collective::kBroadcast},
      {"direct", Collective::kReduceScatter}, {"ps:1", Collective::kAllReduce},
      {"halving-doubling", Collective::kAllGather}, {"halving-doubling", Collective::kReduceScatter},
  };
  for (const auto& [name, collective] : cases) {
    for (const int32_t ranks : {2, 3, 5, 8, 13, 16}) {
      for (const Bytes bytes : {Bytes(1 << 10), Bytes(1 << 20), Bytes(100'000'000)}) {
        const double closed = Closed(name, collective, Equal(ranks), bytes);
        EXPECT_NEAR(Replayed(name, collective, Equal(ranks), bytes) / closed, 1, 1e-9)
            << name << " " << CollectiveName(collective) << " n=" << ranks << " bytes=" << bytes.count();
      }
    }
  }
}

TEST(ClosedForms, EqualTheReplayOfPipelinedBroadcasts) {
  for (const int32_t slices : {1, 2, 7, 32}) {
    EXPECT_NEAR(Replayed("pipelined", Collective::kBroadcast, Equal(9), Bytes(50'000'000), slices) /
                    Closed("pipelined", Collective::kBroadcast, Equal(9), Bytes(50'000'000), slices),
                1, 1e-9)
        << slices;
  }
}

/// Hosts of `group` ranks with 100 GB/s and 1 us inside, 10 GB/s and 5 us between them.
CommunicatorShape Hosts(int32_t hosts, int32_t group) {
  return {.ranks = hosts * group,
          .group = group,
          .inner = {Seconds(1e-6), GigabytesPerSecond(100)},
          .outer = {Seconds(kLatency), GigabytesPerSecond(10)}};
}

TEST(ClosedForms, EqualTheReplayOfHierarchiesOnHosts) {
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    for (const auto& [hosts, group] : {std::pair{2, 4}, {3, 2}, {4, 4}, {5, 3}}) {
      const std::string name = fmt::format("hierarchical:{}", group);
      for (const Bytes bytes : {Bytes(1 << 10), Bytes(1 << 20), Bytes(100'000'000)}) {
        const CommunicatorShape shape = Hosts(hosts, group);
        EXPECT_NEAR(Replayed(name, collective, shape, bytes) / Closed(name, collective, shape, bytes), 1, 1e-9)
            << hosts << " hosts of " << group << ", " << bytes.count() << " bytes";
      }
    }
  }
}

// A step of the first ring carries several chunks, which may overtake a latency of the next one: at most 0.5 %.
TEST(ClosedForms, EqualTheReplayOfASquareTorus) {
  for (const int32_t side : {2, 3, 4}) {
    CommunicatorShape shape = Hosts(side, side);
    shape.outer = shape.inner;  // rows on one port, columns on the other
    const std::string name = fmt::format("torus:{}", side);
    for (const Bytes bytes : {Bytes(1 << 10), Bytes(100'000'000)}) {
      EXPECT_NEAR(Replayed(name, Collective::kAllReduce, shape, bytes) / Closed(name, Collective::kAllReduce, shape, bytes),
                  1, 5e-3)
          << side << " x " << side;
    }
  }
}

// Where ports are shared by transfers of different length the order of service decides, and the form is an estimate.
TEST(ClosedForms, AreNearTheReplayOfTreesAndRingsAcrossHosts) {
  for (const int32_t ranks : {4, 5, 8, 12, 16}) {
    for (const int32_t slices : {1, 8, 32}) {
      for (const Bytes bytes : {Bytes(1 << 10), Bytes(1 << 18), Bytes(100'000'000)}) {
        EXPECT_NEAR(Replayed("tree", Collective::kAllReduce, Equal(ranks), bytes, slices) /
                        Closed("tree", Collective::kAllReduce, Equal(ranks), bytes, slices),
                    1, 0.2)
            << ranks << " ranks, " << slices << " slices, " << bytes.count() << " bytes";
      }
    }
  }
  for (const Bytes bytes : {Bytes(1 << 10), Bytes(100'000'000)}) {
    EXPECT_NEAR(Replayed("ring", Collective::kAllReduce, Hosts(4, 4), bytes) /
                    Closed("ring", Collective::kAllReduce, Hosts(4, 4), bytes),
                1, 0.15)
        << bytes.count();
  }
}

TEST(ParameterServer, SpareCpuMachinesGoFromTheRingToTheDataOnce) {
  const Bytes bytes(1'000'000'000);
  const BitsPerSecond rate = GigabytesPerSecond(1);
  EXPECT_NEAR(SpareServerTime(8, 0, bytes, rate, Seconds(0)).count(), 2.0 * 7 / 8, 1e-12);
  EXPECT_NEAR(SpareServerTime(8, 8, bytes, rate, Seconds(0)).count(), 1, 1e-12);
  for (int32_t spare = 0; spare <= 8; ++spare) {
    const ServerShares shares = BestServerShares(8, spare);
    EXPECT_NEAR(8 * shares.gpu_machine + spare * shares.cpu_machine, 1, 1e-12);
    // Traffic of a GPU machine: its data but its own share, and its share for the 7 others; of a CPU machine: 8 shares.
    const double time = SpareServerTime(8, spare, bytes, rate, Seconds(0)).count();
    EXPECT_NEAR(1 - shares.gpu_machine + 7 * shares.gpu_machine, time, 1e-12);
    EXPECT_NEAR(8 * shares.cpu_machine, spare > 0 ? time : 0, 1e-12);
  }
}

TEST(Replay, RefusesAShapeOfOtherRanks) {
  const auto time = ReplayTime(Make("ring", Collective::kAllReduce, 4), Equal(5), Bytes(8));
  ASSERT_FALSE(time);
  EXPECT_THAT(time.error().message(), HasSubstr("4 ranks on a shape of 5"));
}

}  // namespace
}  // namespace weft::planner::collectives

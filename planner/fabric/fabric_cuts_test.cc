#include "planner/fabric/fabric_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "planner/fabric/fabrics.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/jobs/master.h"

namespace weft::planner::inline fabric {
namespace {

using testing::ElementsAre;

std::vector<NodeId> EndPoints(const Cluster& cluster) {
  std::vector<NodeId> ends;
  for (const ClusterHost& host : cluster.hosts) ends.insert(ends.end(), host.gpus.begin(), host.gpus.end());
  return ends;
}

const FabricCut& Named(const FabricCuts& cuts, std::string_view name) {
  const auto found = std::find_if(cuts.cuts().begin(), cuts.cuts().end(),
                                  [&](const FabricCut& c) { return c.name == name; });
  EXPECT_NE(found, cuts.cuts().end()) << name;
  return *found;
}

/// Seconds that the worst cut needs.
double WorstOf(const FabricCuts& cuts, const std::vector<CutLoad>& loads) {
  const std::vector<BitsPerSecond> capacity = cuts.Capacities();
  double worst = 0;
  for (const CutLoad& load : loads) worst = std::max(worst, load.bytes / capacity[load.cut].bytes_per_second());
  return worst;
}

/// The same over all sets of nodes. Requires: at most 16 nodes.
double WorstOfAllSets(const Topology& topology, const std::vector<CutTransfer>& transfers) {
  double worst = 0;
  for (uint32_t set = 1; set + 1 < uint32_t{1} << topology.nodes().size(); ++set) {
    const auto inside = [&](NodeId node) { return (set >> node.index() & 1) != 0; };
    double capacity = 0, bytes = 0;
    for (const CutTransfer& t : transfers) bytes += inside(t.from) && !inside(t.to) ? t.bytes : 0;
    if (bytes == 0) continue;
    for (const Link& link : topology.links()) {
      capacity += inside(link.from) && !inside(link.to) ? link.capacity.bytes_per_second() : 0;
    }
    worst = std::max(worst, bytes / capacity);
  }
  return worst;
}

std::vector<CutTransfer> RandomTransfers(const Cluster& cluster, std::mt19937* random) {
  const std::vector<NodeId> ends = EndPoints(cluster);
  std::vector<CutTransfer> transfers;
  for (size_t i = 0; i < 2 + (*random)() % 8; ++i) {
    const size_t from = (*random)() % ends.size(), to = (from + 1 + (*random)() % (ends.size() - 1)) % ends.size();
    transfers.push_back({ends[from], ends[to], 1e9 * (1 + (*random)() % 9)});
  }
  return transfers;
}

TEST(FabricCuts, AreHostsLeavesAndPodsOfAThreeTierClos) {
  const Cluster cluster = ThreeTierClos({.pods = 3, .leaves_per_pod = 2, .aggregations_per_pod = 2,
                                         .cores_per_aggregation = 2, .hosts_per_leaf = 4});
  const FabricCuts cuts(cluster.topology);
  EXPECT_EQ(cuts.cuts().size(), 24u + 6u + 3u);
  EXPECT_NEAR(Named(cuts, "h1").out.value(), 400e9, 1);
  EXPECT_NEAR(Named(cuts, "below leaf1-1").out.value(), 800e9, 1);
  const FabricCut& pod = Named(cuts, "below agg1-1 and 1 more");
  EXPECT_NEAR(pod.in.value(), 4 * 400e9, 1);
  EXPECT_EQ(pod.end_points, 8);
  EXPECT_EQ(pod.parent, -1);
  EXPECT_EQ(cuts.cuts()[static_cast<size_t>(Named(cuts, "below leaf1-2").parent)].name, pod.name);
}

// GPUs leave a DGX through 8 NICs of 400 Gbit/s: a tighter cut than NVLink and PCIe around the same GPUs.
TEST(FabricCuts, AServerIsAsTightAsItsNics) {
  const Cluster cluster =
      RailOptimised({.hosts = 4, .rails = 8, .hosts_per_group = 2, .spines = 2, .server = DgxH100()});
  const FabricCuts cuts(cluster.topology);
  const FabricCut* server = nullptr;
  for (const FabricCut& cut : cuts.cuts()) {
    if (cut.end_points == 8) server = &cut;
  }
  ASSERT_NE(server, nullptr);
  EXPECT_NEAR(server->out.value(), 3.2e12, 1e3);
  const FabricCut& group = cuts.cuts()[static_cast<size_t>(server->parent)];
  EXPECT_EQ(group.end_points, 16) << "both hosts of a group hang on the same rails";
  EXPECT_NEAR(group.out.value(), 8 * 2 * 400e9, 1e3);
}

// Every generator of switches in tiers, at random rates: no set of nodes is tighter than the tightest tier cut.
TEST(FabricCuts, NoOtherSetIsTighterWhereSwitchesOfATierAreAlike) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto rate = [&] { return GigabitsPerSecond(100.0 * (1 + random() % 4)); };
    Cluster cluster;
    switch (seed % 3) {
      case 0:
        cluster = ThreeTierClos({.pods = 2, .leaves_per_pod = 2, .aggregations_per_pod = 1, .cores_per_aggregation = 1,
                                 .hosts_per_leaf = 1 + static_cast<int>(seed % 2), .host_rate = rate(),
                                 .fabric_rate = rate(), .core_rate = rate()});
        break;
      case 1:
        cluster = RailOptimised({.hosts = 4, .rails = 2, .hosts_per_group = 2, .spines = 2, .host_rate = rate(),
                                 .fabric_rate = rate()});
        break;
      default:
        cluster = DualPlane({.hosts = 4, .hosts_per_leaf = 2, .spines_per_plane = 2, .port_rate = rate(),
                             .fabric_rate = rate()});
    }
    ASSERT_LE(cluster.topology.nodes().size(), 16u);
    const FabricCuts cuts(cluster.topology);
    for (int draw = 0; draw < 3; ++draw) {
      const std::vector<CutTransfer> transfers = RandomTransfers(cluster, &random);
      const double all = WorstOfAllSets(cluster.topology, transfers);
      EXPECT_NEAR(WorstOf(cuts, cuts.Loads(transfers)), all, 1e-9 * all) << "seed " << seed;
    }
  }
}

// Failed cables and a torus: still cuts, so never above what all sets give, and mostly equal.
TEST(FabricCuts, StayABoundWhereTheFabricIsUneven) {
  double sum = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Cluster cluster = seed % 4 == 0 ? Torus({.extent = {2, 3}})
                                    : ThreeTierClos({.pods = 2, .leaves_per_pod = 2, .aggregations_per_pod = 2,
                                                     .cores_per_aggregation = 1, .hosts_per_leaf = 1});
    for (size_t l = 0; l < cluster.topology.links().size(); ++l) {
      if (random() % 4 != 0) continue;
      cluster.topology.SetCapacity(LinkId(static_cast<int32_t>(l)), GigabitsPerSecond(40.0 * (1 + random() % 9)));
    }
    ASSERT_LE(cluster.topology.nodes().size(), 16u);
    const FabricCuts cuts(cluster.topology);
    const std::vector<CutTransfer> transfers = RandomTransfers(cluster, &random);
    const double all = WorstOfAllSets(cluster.topology, transfers), ours = WorstOf(cuts, cuts.Loads(transfers));
    EXPECT_LE(ours, all * (1 + 1e-9)) << "seed " << seed;
    sum += ours / all;
  }
  EXPECT_GE(sum / 40, 0.9) << "or the cuts would say little about damaged fabrics";
}

// One host per leaf: its own link and the leaf's two uplinks bind in turns, as they give more or less.
TEST(FabricCuts, AreAsTightAsTheirLinksAreAtThatTime) {
  const Topology topology = LeafSpine(2, 2, 1, GigabitsPerSecond(100));
  const FabricCuts cuts(topology);
  std::vector<BitsPerSecond> links;
  for (const Link& link : topology.links()) links.push_back(link.capacity);
  EXPECT_EQ(cuts.Capacities(links), cuts.Capacities());
  const auto out_of_h1 = [&] {
    return cuts.Capacities(links)[2 * static_cast<size_t>(cuts.Around(*topology.FindNode("h1")).front())];
  };
  EXPECT_EQ(out_of_h1(), GigabitsPerSecond(100)) << "its own link";
  for (const char* spine : {"spine1", "spine2"}) {
    links[topology.FindLink(*topology.FindNode("leaf1"), *topology.FindNode(spine))->index()] = GigabitsPerSecond(20);
  }
  EXPECT_EQ(out_of_h1(), GigabitsPerSecond(40)) << "what is left of the uplinks";
  links[topology.FindLink(*topology.FindNode("h1"), *topology.FindNode("leaf1"))->index()] = BitsPerSecond(0);
  EXPECT_EQ(out_of_h1(), BitsPerSecond(0));
}

// Two hosts with a cable between them, and one uplink each: alone a host has two links, both together two as well.
TEST(FabricCuts, EndPointsWithACableBetweenThemAreCutsByThemselvesToo) {
  Topology topology;
  const NodeId leaf = topology.AddNode("leaf", NodeKind::kSwitch);
  const NodeId a = topology.AddNode("a", NodeKind::kHost), b = topology.AddNode("b", NodeKind::kHost);
  topology.AddCable(topology.AddNode("c", NodeKind::kHost), leaf, GigabitsPerSecond(100));
  topology.AddCable(a, leaf, GigabitsPerSecond(100));
  topology.AddCable(b, leaf, GigabitsPerSecond(100));
  topology.AddCable(a, b, GigabitsPerSecond(10));
  const FabricCuts cuts(topology);
  EXPECT_EQ(Named(cuts, "a").out, GigabitsPerSecond(110));
  EXPECT_EQ(cuts.Around(a).size(), 2u);
  EXPECT_NEAR(WorstOf(cuts, cuts.Loads(std::vector<CutTransfer>{{a, b, 11e9}, {a, *topology.FindNode("c"), 11e9}})), 1.6, 1e-9);
}

TEST(FabricCuts, TransfersCrossWhatLiesBetweenTheirEnds) {
  const Cluster cluster = ThreeTierClos({.pods = 2, .leaves_per_pod = 2, .hosts_per_leaf = 2});
  const FabricCuts cuts(cluster.topology);
  const std::vector<NodeId> ends = EndPoints(cluster);
  const auto crossed = [&](NodeId from, NodeId to) {
    std::vector<std::string> names;
    for (const CutLoad& load : cuts.Loads(std::vector<CutTransfer>{{from, to, 5}})) {
      EXPECT_EQ(load.bytes, 5);
      names.push_back((load.cut % 2 == 0 ? "out of " : "into ") + cuts.cuts()[load.cut / 2].name);
    }
    return names;
  };
  EXPECT_THAT(crossed(ends[0], ends[1]), ElementsAre("out of h1", "into h2"));
  EXPECT_THAT(crossed(ends[0], ends[2]),
              ElementsAre("out of h1", "into h3", "out of below leaf1-1", "into below leaf1-2"));
  EXPECT_EQ(crossed(ends[0], ends[7]).size(), 6u);
  EXPECT_TRUE(crossed(ends[3], ends[3]).empty());
}

// Three ranks of four lie below leaf1, so that M = 8 bytes are: all-gather 3/4 out, 1/4 in; reduce-scatter the
// mirror; all-reduce all of it both ways; all-to-all of 8 bytes per rank 3 · 1 · 8 / 4.
TEST(FabricCuts, CollectivesCrossWhatTheirMembersLackOrHave) {
  const Cluster cluster = ThreeTierClos({.pods = 1, .leaves_per_pod = 2, .hosts_per_leaf = 3});
  const FabricCuts cuts(cluster.topology);
  const std::vector<NodeId> ends = EndPoints(cluster);
  const std::vector<NodeId> members = {ends[0], ends[1], ends[2], ends[3]};
  const auto below_leaf = [&](GroupExchange exchange) {
    std::pair<double, double> result;
    for (const CutLoad& load : cuts.Loads(exchange, 8, members)) {
      if (cuts.cuts()[load.cut / 2].name != "below leaf1-1") continue;
      (load.cut % 2 == 0 ? result.first : result.second) = load.bytes;
    }
    return result;
  };
  EXPECT_EQ(below_leaf(GroupExchange::kAllGather), std::pair(6.0, 2.0));
  EXPECT_EQ(below_leaf(GroupExchange::kReduceScatter), std::pair(2.0, 6.0));
  EXPECT_EQ(below_leaf(GroupExchange::kAllReduce), std::pair(8.0, 8.0));
  EXPECT_EQ(below_leaf(GroupExchange::kAllToAll), std::pair(6.0, 6.0));
}

// The master problem on these cuts: two jobs of 1 s compute and 1 s over the way up of one leaf of half the rate.
TEST(FabricCuts, AreWhatTheMasterProblemIsBoundBy) {
  const Cluster cluster = ThreeTierClos({.pods = 1, .leaves_per_pod = 2, .aggregations_per_pod = 1, .hosts_per_leaf = 2,
                                         .host_rate = GigabytesPerSecond(1), .fabric_rate = GigabytesPerSecond(1)});
  const FabricCuts cuts(cluster.topology);
  const std::vector<NodeId> ends = EndPoints(cluster);
  MasterProblem problem{.cuts = cuts.Capacities()};
  std::vector<std::vector<Configuration>> pools;
  for (size_t j = 0; j < 2; ++j) {
    Configuration c{.name = "only", .compute = Seconds(1), .iteration = Seconds(3)};
    c.loads = cuts.Loads(std::vector<CutTransfer>{{ends[j], ends[2 + j], 2e9}});
    pools.push_back({std::move(c)});
    problem.jobs.push_back({.name = "j"});
  }
  problem.source = FromPools(std::move(pools));
  const auto answer = SolveMaster(problem);
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  // The way up carries 1 GB/s: half an iteration per second of both together, each computing 1 s.
  EXPECT_NEAR(answer->bound, 0.5, 1e-6);
}

}  // namespace
}  // namespace weft::planner::fabric

#include "planner/plan/model_ways.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/fabric/testing/leaf_spine.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

JobSpec Job(const char* model, int64_t batch, int64_t sequence) {
  return {.name = "job", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = sequence};
}

/// DGX A100 under the leaves of four hosts each, which share an uplink.
NodeTiers Joined(const std::vector<int>& hosts, double uplink_gbit) {
  Topology topology = LeafSpine(4, 1, 4, GigabitsPerSecond(1600));
  for (size_t l = 0; l < topology.links().size(); ++l) {
    const Link& link = topology.links()[l];
    const bool up = topology.node(link.from).kind == NodeKind::kSwitch && topology.node(link.to).kind == NodeKind::kSwitch;
    if (up) topology.SetCapacity(LinkId(static_cast<int32_t>(l)), GigabitsPerSecond(uplink_gbit));
  }
  std::vector<std::vector<NodeId>> senders;
  for (const int host : hosts) senders.push_back({*topology.FindNode(fmt::format("h{}", host))});
  return FindNodeTiers(topology, senders);
}

ModelWaysAnswer On(const std::vector<int>& hosts, double uplink_gbit, FixedVariables fix = {}) {
  WayPlanner planner(Job("llama3-8b", 64, 8192), FindClusterPreset("dgx-a100", 4).value(), {.fix = std::move(fix), .framework = std::nullopt, .allow = {}});
  return planner.On(Joined(hosts, uplink_gbit)).value();
}

double Sent(const ModelWay& way) {
  double bytes = 0;
  for (const ProfileBurst& burst : way.profile.bursts) {
    for (const PairBytes& pair : burst.between) bytes += static_cast<double>(pair.bytes.count());
  }
  return bytes;
}

TEST(WayPlanner, TheFirstIsBlindAndTheOthersSendLessOrElsewhere) {
  WayPlanner planner(Job("llama3-8b", 64, 8192), FindClusterPreset("dgx-a100", 4).value(), {});
  const ModelWaysAnswer blind = planner.Blind().value();
  const ModelWaysAnswer all = planner.On(Joined({1, 5, 9, 13}, 200)).value();
  ASSERT_GT(all.ways.size(), 1u);
  EXPECT_LE(all.ways.size(), kMostModelWays);
  EXPECT_EQ(all.ways[0].profile.plan.strategy, blind.ways.at(0).profile.plan.strategy);
  EXPECT_EQ(all.ways[0].hosts, (std::vector<int32_t>{0, 1, 2, 3}));
  // All hosts are under leaves of their own: nothing but bytes between nodes tells ways apart.
  for (size_t w = 1; w < all.ways.size(); ++w) {
    for (size_t o = 0; o < all.ways.size(); ++o) {
      if (o == w) continue;
      const bool beaten = all.ways[o].profile.plan.predicted.iteration <= all.ways[w].profile.plan.predicted.iteration &&
                          Sent(all.ways[o]) < Sent(all.ways[w]);
      EXPECT_FALSE(beaten) << o << " beats " << w;
    }
  }
  EXPECT_LT(Sent(all.ways.back()), Sent(all.ways.front()));
}

// Hosts listed in turns under two leaves: a way in order of the leaves crosses less than the same strategy in order of the list.
TEST(WayPlanner, RanksThatFollowTheLeavesAreAnotherWay) {
  const ModelWaysAnswer all = On({1, 5, 2, 6}, 400);
  std::set<std::vector<int32_t>> orders;
  for (const ModelWay& way : all.ways) orders.insert(way.hosts);
  EXPECT_TRUE(orders.contains({0, 2, 1, 3}));
}

TEST(WayPlanner, WhatIsFixedStaysInEveryWay) {
  const ModelWaysAnswer all = On({1, 5, 9, 13}, 200, ParseFixed("tp=4").value());
  ASSERT_FALSE(all.ways.empty());
  for (const ModelWay& way : all.ways) EXPECT_EQ(way.profile.plan.strategy.tp, 4);
}

TEST(WayPlanner, OneNodeHasOneWay) {
  WayPlanner planner(Job("gpt2", 64, 1024), FindClusterPreset("dgx-a100", 1).value(), {});
  EXPECT_EQ(planner.On(Joined({1}, 200)).value().ways.size(), 1u);
}

}  // namespace
}  // namespace weft::planner

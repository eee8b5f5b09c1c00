// Inputs of the network benchmarks, seeded and built outside every timed loop.
#pragma once

#include <random>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/fabric/topology.h"
#include "planner/network/max_min.h"

namespace weft::planner::bench {

/// Flows between random pairs of different hosts of a leaf–spine, each over a random spine.
struct RandomTraffic {
  std::vector<BitsPerSecond> capacity;
  std::vector<std::vector<LinkId>> paths;

  std::vector<MaxMinFlow> Flows() const {
    std::vector<MaxMinFlow> flows;
    for (const std::vector<LinkId>& path : paths) flows.push_back({.links = path});
    return flows;
  }
};

inline RandomTraffic MakeRandomTraffic(int flows, uint32_t seed = 1, int leaves = 64, int spines = 16, int per_leaf = 16) {
  const Topology fabric = LeafSpine(leaves, spines, per_leaf, GigabitsPerSecond(100));
  RandomTraffic traffic;
  for (const Link& link : fabric.links()) traffic.capacity.push_back(link.capacity);
  std::mt19937 random(seed);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<uint32_t>(below)); };
  const auto host = [&](int index) { return NodeId(leaves + spines + index); };
  for (int f = 0; f < flows; ++f) {
    const int from = draw(leaves * per_leaf), spine = draw(spines);
    int to = draw(leaves * per_leaf - 1);
    if (to >= from) ++to;
    const NodeId up(from / per_leaf), down(to / per_leaf), top(leaves + spine);
    std::vector<LinkId> path = {*fabric.FindLink(host(from), up)};
    if (up != down) {
      path.push_back(*fabric.FindLink(up, top));
      path.push_back(*fabric.FindLink(top, down));
    }
    path.push_back(*fabric.FindLink(down, host(to)));
    traffic.paths.push_back(std::move(path));
  }
  return traffic;
}

}  // namespace weft::planner::bench

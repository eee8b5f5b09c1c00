// The fabric of most tests: leaves, spines and hosts, all cables alike.
#pragma once

#include <fmt/format.h>

#include "planner/fabric/topology.h"

namespace weft::planner::inline fabric {

/// leaves × spines × hosts per leaf, every cable of `rate`. Names: "leaf1", "spine1", "h1" … in order of leaf.
inline Topology LeafSpine(int leaves, int spines, int hosts_per_leaf, BitsPerSecond rate) {
  Topology topology;
  for (int leaf = 1; leaf <= leaves; ++leaf) topology.AddNode(fmt::format("leaf{}", leaf), NodeKind::kSwitch);
  for (int spine = 1; spine <= spines; ++spine) topology.AddNode(fmt::format("spine{}", spine), NodeKind::kSwitch);
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int i = 0; i < hosts_per_leaf; ++i) {
      const NodeId host = topology.AddNode(fmt::format("h{}", leaf * hosts_per_leaf + i + 1), NodeKind::kHost);
      topology.AddCable(host, NodeId(leaf), rate);
    }
  }
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int spine = 0; spine < spines; ++spine) topology.AddCable(NodeId(leaf), NodeId(leaves + spine), rate);
  }
  return topology;
}

}  // namespace weft::planner::fabric

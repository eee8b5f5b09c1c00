// What groups of ranks cross when they fill a cluster node after node: the leaves, pods … above the nodes, each with what
// its narrowest unit can send out. Found in any topology by its cuts (fabric_cuts.h), so that oversubscribed, rail-only and
// damaged fabrics need no words of their own.
//
//   const NodeTiers found = FindNodeTiers(topology, senders_of_nodes);
//   cluster.tiers = found.tiers;
//
// Leaves out: collisions inside a tier (paths are Weft's to choose), and that units of one tier differ: the smallest and the
// narrowest count for all, as ranks that work in lock step wait for the slowest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/fabric/topology.h"

namespace weft::planner {

/// Nodes that one tier of switches joins.
struct FabricTier {
  std::string name;    ///< of its switches, without their numbers: "leaf", "rail", "spine"
  int64_t nodes = 1;   ///< in one unit; of the last tier: all
  BitsPerSecond out;   ///< per node and direction, out of a unit; of the last tier 0: there is nothing outside
};

struct NodeTiers {
  std::vector<FabricTier> tiers;  ///< innermost first; at least one
  std::vector<int32_t> order;     ///< nodes (indices of the input) so that those of one unit follow each other
};

/// `senders[n]`: node n's GPUs, or the plain host itself. Requires: at least one node, each with at least one end point of the
/// topology, none twice. Complexity: as FabricCuts.
NodeTiers FindNodeTiers(const Topology& topology, std::span<const std::vector<NodeId>> senders);

}  // namespace weft::planner

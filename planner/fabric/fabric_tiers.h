// What groups of ranks cross when they fill a cluster node after node: the leaves, pods … above the nodes, each with what
// its narrowest unit can send out. Found in any topology by its cuts (fabric_cuts.h), so that oversubscribed, rail-only and
// damaged fabrics need no words of their own.
//
//   const NodeTiers found = FindNodeTiers(topology, senders_of_nodes);
//   cluster.tiers = found.tiers;
//
// Leaves out: collisions inside a tier (paths are Weft's to choose); that units of one tier differ: the smallest and the
// narrowest count for all, as ranks that work in lock step wait for the slowest; and, as fabric_cuts.h does, cuts between
// switches of one height that are cabled to each other: a torus, or leaves joined side by side, is priced by its hosts' links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline fabric {

/// Nodes that one tier of switches joins.
struct FabricTier {
  std::string name;    ///< of its switches, without their numbers: "leaf", "rail", "spine"
  int64_t nodes = 1;   ///< in one unit; of the last tier: all
  BitsPerSecond out;   ///< per node and direction, out of a unit; of the last tier 0: there is nothing outside
};

struct NodeTiers {
  BitsPerSecond node_out;         ///< the least that one node can send to or get from the others; 0: no cut has one node alone
  std::vector<FabricTier> tiers;  ///< innermost first; at least one
  std::vector<int32_t> order;     ///< nodes (indices of the input) so that those of one unit follow each other
};

/// The first node that the first one cannot send to or hear from over links that have capacity; nullopt if all are joined.
/// `senders` as FindNodeTiers. Complexity: O(nodes + links).
std::optional<size_t> FindUnjoinedNode(const Topology& topology, std::span<const std::vector<NodeId>> senders);

/// `senders[n]`: node n's GPUs, or the plain host itself. Requires: at least one node, each with at least one end point of the
/// topology, none twice; all joined. Complexity: as FabricCuts.
NodeTiers FindNodeTiers(const Topology& topology, std::span<const std::vector<NodeId>> senders);

}  // namespace weft::planner::fabric

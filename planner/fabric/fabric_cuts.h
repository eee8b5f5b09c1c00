// The cuts of a network that can bind a cluster, for SolveMaster(): what lies below a NIC, a host, a leaf, a pod …,
// found in any topology and not by the names of its generators.
//
//   const FabricCuts cuts(topology);
//   problem.cuts = cuts.Capacities();
//   configuration.loads = cuts.Loads(transfers);
//
// A node's height is its distance from the nearest end point (GPU or host). The nodes up to a height fall into
// connected parts: end points, servers, what hangs on one leaf, pods, in the end everything. Each part that is not
// everything is a cut in both directions. Parts of one height are disjoint and lie within those of the next, so
// that the cuts form a forest and a transfer crosses those on the two ways up to where both ends are together.
//
// In a Clos fabric whose switches of one tier are alike no other set of nodes is a tighter cut: the capacity and
// demand of a union are at most sums of those of its parts. A spine is no cut at all while paths may be chosen:
// nothing starts there. Where cables failed or in a torus other sets may bind earlier; these cuts are then still a
// bound, only a looser one.
//
// Source: what crosses per collective is derived in the .cc file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline fabric {

/// End points with what can leave and enter them.
struct FabricCut {
  std::string name;             ///< "below leaf3", "h7"
  int32_t height = 0;           ///< of the tightest part with these end points
  int64_t end_points = 0;
  BitsPerSecond out, in;
  int32_t parent = -1;          ///< the next larger cut around it; -1: none
};

/// Bytes per iteration that must cross a cut.
struct CutLoad {
  size_t cut = 0;
  double bytes = 0;
};

struct CutTransfer {
  NodeId from, to;
  double bytes = 0;
};

/// What a group of ranks exchanges without reductions inside the network, in any order and by any algorithm.
enum class GroupExchange : uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll };

class FabricCuts {
 public:
  /// Complexity: O((nodes + links) log nodes · heights).
  explicit FabricCuts(const Topology& topology);

  std::span<const FabricCut> cuts() const { return cuts_; }

  /// The cuts around a host or GPU, smallest first. Requires: a node of the topology.
  std::vector<int32_t> Around(NodeId end_point) const;
  /// [nodes] whether a node lies in some cut: the others join everything.
  const std::vector<bool>& NodesInside() const { return inside_; }

  /// For MasterProblem::cuts: 2c is out of cut c, 2c + 1 into it.
  std::vector<BitsPerSecond> Capacities() const;
  /// The same while the topology's links give `links`. Complexity: O(links · heights).
  std::vector<BitsPerSecond> Capacities(std::span<const BitsPerSecond> links) const;

  /// What must cross each cut, by rising index; cuts that nothing crosses are left out.
  /// Requires: ends are hosts or GPUs of the topology, bytes ≥ 0. Complexity: O(transfers · heights).
  std::vector<CutLoad> Loads(std::span<const CutTransfer> transfers) const;

  /// The least that must cross each cut when `members`, one rank each, exchange a full buffer of `bytes` (the
  /// gathered or reduced one; for all-to-all each rank's own). Requires: as Loads. Complexity: O(members ·
  /// heights).
  std::vector<CutLoad> Loads(GroupExchange exchange, double bytes, std::span<const NodeId> members) const;

 private:
  /// What leaves and enters one part.
  struct Border {
    std::vector<LinkId> out, in;
  };

  void Add(FabricCut cut, Border border, std::span<const size_t> end_points);
  int32_t Outermost(size_t node) const;
  int64_t Size(int32_t cut) const { return cuts_[static_cast<size_t>(cut)].end_points; }

  std::vector<FabricCut> cuts_;
  std::vector<std::vector<Border>> borders_;   // per cut, of every part with its end points: which is tighter follows the links
  std::vector<bool> inside_;
  std::vector<int32_t> around_;     // per node: the smallest cut around it, if it is an end point; -1: none
};

}  // namespace weft::planner::fabric

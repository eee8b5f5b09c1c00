// How an all-reduce (or all-gather, reduce-scatter) should be cut into levels on the links that there are: NVLink, PCIe,
// sockets' links, NICs and the fabric as one graph. Candidates are one flat ring and two levels with every group size that
// divides the ranks (at most 72, an NVL72 rack); what a level's links give is the fair rate of its transfers when all of
// them run at once over the graph (inside everybody to everybody, across rings), so that PCIe uplinks, NICs that several
// GPUs share, slow NICs and rails count for what they are. Of equal paths a transfer takes the one with most room.
//
//   const auto groupings = ChooseGrouping(topology, gpus, Collective::kAllReduce, 256_MiB);   // cheapest first
//
// Rank order is the caller's: neighbours in `gpus` are neighbours in the groups. Same places of different groups talk to
// each other, so that with one group per host each GPU stays on its rail; data for other rails has gone by NVLink before.
//
// Source: two levels as BlueConnect (MLSys 2019); the rates are derived as said.
#pragma once

#include <span>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/algorithm.h"
#include "planner/fabric/topology.h"

namespace weft::planner::inline collectives {

struct GroupingCost {
  AlgorithmSpec spec;           ///< ring, or hierarchical with its group size
  Seconds time{0};
  BitsPerSecond inner, outer;   ///< of one rank on each level; of a ring: `outer` is its slowest hop, `inner` unset
};

struct GroupingOptions {
  Seconds inner_latency{3e-6};  ///< of a step between ranks whose path has no network link
  Seconds outer_latency{8e-6};  ///< of one over the network
};

/// All candidates, cheapest first, ties to the smaller group. Errors: kInvalidArgument for fewer than two ranks, a rank
/// that another one cannot reach, or a collective without two levels. Complexity: O(divisors · ranks · group) shortest
/// paths and fair rates.
[[nodiscard]] Result<std::vector<GroupingCost>> ChooseGrouping(const Topology& topology, std::span<const NodeId> gpus,
                                                               Collective collective, Bytes bytes,
                                                               const GroupingOptions& options = {});

}  // namespace weft::planner::collectives

// What a collective costs a group of ranks: closed forms over the tiers that the group crosses. `weft plan` prices and
// `weft validate` checks strategies by these.
//
//   GroupNetwork network{.gpus_per_node = 8, .intra_rate = 240e9, .nic_rate = 45e9, ...};
//   const double seconds = AllReduceTime(network, {.size = 64, .stride = 8}, 25e6);
//
// Leaves out: what an all-to-all that straddles two units sends between them; two groups that want one link at different
// times (all groups of a kind run at once and share evenly).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace weft::planner::inline collectives {

/// A communicator: `size` ranks, `stride` apart.
struct Group {
  int64_t size = 1;
  int64_t stride = 1;
  friend auto operator<=>(const Group&, const Group&) = default;
};

/// A tier above the node that gives less than it is asked for.
struct NetworkTier {
  int64_t gpus = 1;   ///< in one of its units, ranks in order
  double rate = 0;    ///< byte/s per GPU and direction that leave a unit
};
inline constexpr size_t kMostTiers = 8;  ///< further ones are left out: real fabrics have three

/// Rates per GPU and direction, in byte/s and efficiencies applied; latencies of one step in seconds.
struct GroupNetwork {
  int64_t gpus_per_node = 1;
  double intra_rate = 1, nic_rate = 1;              ///< the node's NICs divided by its GPUs
  double intra_latency = 0, nic_latency = 0;
  double direct_intra_rate = 1;                     ///< of all-to-all and point to point inside a node
  std::array<NetworkTier, kMostTiers> above = {};   ///< innermost first; none where the network blocks nobody
  size_t tiers = 0;                                 ///< of `above`
};

/// Ring collectives of a full tensor of `bytes`. Inside one node at NVLink's rate; across nodes the group's ranks of one node
/// share its NICs with the node's other groups, and those of one unit of a tier share what leaves it. Source: Patarasuk and
/// Yuan 2009 (ring); BlueConnect, MLSys 2019 (hierarchy). Requires: size, stride ≥ 1. Complexity: O(tiers).
double GatherTime(const GroupNetwork& network, const Group& group, double bytes);     ///< also reduce-scatter
double AllReduceTime(const GroupNetwork& network, const Group& group, double bytes);  ///< ring, or tree across nodes
/// Whether AllReduceTime's answer is a tree's.
bool TreeIsFaster(const GroupNetwork& network, const Group& group, double bytes);
/// Reduce-scatter in the node, all-reduce between nodes, all-gather in the node.
double HierarchicalAllReduceTime(const GroupNetwork& network, const Group& group, double bytes);
/// As many servers as ranks, beside them: every rank pushes and pulls all but its own share.
double ParameterServerTime(const GroupNetwork& network, const Group& group, double bytes);
/// The switches sum: what a rank holds after the sum inside its node leaves it once and comes back once, both ways at the same time.
/// Between units of a tier one sum of each unit travels. Source: arXiv 1603.06596 (aggregation trees in switches), latencies apart.
double SwitchSumTime(const GroupNetwork& network, const Group& group, double bytes);
/// An all-reduce inside each unit of the outermost tier that the group crosses (the node, where no tier blocks), and an exchange of
/// everything with one neighbouring unit.
double GossipTime(const GroupNetwork& network, const Group& group, double bytes);
/// `bytes` held by each rank; the share (size-1)/size leaves it.
double AllToAllTime(const GroupNetwork& network, const Group& group, double bytes);
/// Between neighbours of the group, all pairs at once.
double SendTime(const GroupNetwork& network, const Group& group, double bytes);
/// The same where all wait for the slowest pair: a step round a ring.
double RingStepTime(const GroupNetwork& network, const Group& group, double bytes);
/// Of SendTime, the rate between nodes in byte/s.
double SendRate(const GroupNetwork& network, const Group& group);

/// The innermost tier that has every such group in one unit: 0 the node, k the k-th of `unit_gpus` (ascending GPUs of a unit), the
/// last if none has.
size_t OutermostTier(const GroupNetwork& network, const Group& group, std::span<const int64_t> unit_gpus);

}  // namespace weft::planner::collectives

// What a collective costs a group of ranks: the one account. The search, the simulator, `weft validate` and the controller's
// tables all ask it; schedule_cost.h adds the schedules that only Weft's own runtime runs, servers and packed trees too.
//
//   GroupNetwork network{.gpus_per_node = 8, .intra_rate = 240e9, .nic_rate = 45e9, ...};
//   const double seconds = AllReduceTime(network, {.size = 64, .stride = 8}, 25e6);
//
// With n ranks on M nodes of p, S bytes, a the latency of a step of the protocol, B what an edge of the ring gets:
//
//   ring         k (M (p-1) a_inside + (M-1) a_nic) + k (n-1)/n S/B     k = 2 for all-reduce, 1 for its halves
//   tree         2 ((p-1) a_inside + log2 M a_nic) + 2 S / 0.85 c(S) B  double binary between nodes, chains inside; c: tree_rate.h
//   nvls         start + (1 + 1/p) (S + fill) / C                       C: what a GPU's NVLink gives of sums in the switch
//   nvls-tree    the same + 2 log2 M a_nic, at no more than the node's NICs carry: S once on two nodes, else twice
//
// each behind the protocol's own start, and for LL and LL128 with less of B. What is fastest is what NCCL runs.
//
// Leaves out: what an all-to-all that straddles two units sends between them; two groups that want one link at different
// times (all groups of a kind run at once and share evenly); how few connections send/recv opens.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "planner/collectives/algorithm_kind.h"
#include "planner/collectives/schedule.h"

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

/// LL or LL128 of this network.
struct EarlyProtocol {
  double start = 0;                             ///< s, once
  double intra_latency = 0, nic_latency = 0;    ///< s of one step
  double stretch = 1;                           ///< time on the wire over Simple's, at least 1
  /// s per byte of a ring at the least, on one, two and more nodes.
  std::array<double, 3> least_per_byte = {};
};

/// Rates per GPU and direction, in byte/s and efficiencies applied; latencies of one step of Simple in seconds.
struct GroupNetwork {
  int64_t gpus_per_node = 1;
  double intra_rate = 1, nic_rate = 1;              ///< the node's NICs divided by its GPUs, at most what a GPU's slot takes
  double intra_latency = 0, nic_latency = 0;
  double direct_intra_rate = 1;                     ///< of all-to-all and point to point inside a node
  double direct_nic_share = 1;                      ///< of nic_rate that all-to-all reaches
  double peer_latency = 0;                          ///< s that each rank on another node costs a rank of an all-to-all
  std::array<NetworkTier, kMostTiers> above = {};   ///< innermost first; none where the network blocks nobody
  size_t tiers = 0;                                 ///< of `above`
  // The library that runs the collectives.
  bool single_ring = false;                         ///< one ring, which leaves a node by one NIC; else one for each NIC
  double start = 0;                                 ///< s, of every collective in Simple; not of point to point
  std::array<EarlyProtocol, kProtocols - 1> early = {};  ///< by Protocol
  bool has_early = false;
  bool has_ll128 = false;                           ///< with has_early
  double least_stretch = 1;                         ///< of those that it has
  double switch_rate = 0;                           ///< of a GPU while the node's switch sums (NVLS); 0: it does not
  double switch_start = 0;                          ///< s
};

/// Ranks of a group among `gpus` consecutive ones.
int64_t RanksInside(const Group& group, int64_t gpus);

/// Ring collectives of a full tensor of `bytes`. Inside one node at NVLink's rate; across nodes the group's ranks of one node
/// share its NICs with the node's other groups, and those of one unit of a tier share what leaves it. Source: Patarasuk and
/// Yuan 2009 (ring); BlueConnect, MLSys 2019 (hierarchy); NCCL 2.30, src/graph/tuning.cc (protocols, trees).
/// Requires: size, stride ≥ 1. Complexity: O(tiers).
double GatherTime(const GroupNetwork& network, const Group& group, double bytes);     ///< also reduce-scatter
double AllReduceTime(const GroupNetwork& network, const Group& group, double bytes);  ///< the fastest algorithm and protocol
/// Whose time AllReduceTime's answer is: ring, tree, nvls or nvls-tree.
Algorithm AllReduceAlgorithm(const GroupNetwork& network, const Group& group, double bytes);
/// One algorithm in one protocol; nullopt where the network or the collective has no such. For ring, tree, nvls and nvls-tree.
std::optional<double> CollectiveTime(const GroupNetwork& network, const Group& group, Collective collective, Algorithm algorithm,
                                     Protocol protocol, double bytes);
/// What the library chooses itself: the functions above and below by name; a broadcast goes down the ring, and send/recv is a step
/// round it.
double CollectiveTime(const GroupNetwork& network, const Group& group, Collective collective, double bytes);

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
/// Ranks of one of those units: the whole group, where it crosses none.
int64_t GossipUnit(const GroupNetwork& network, const Group& group);
/// `bytes` held by each rank; the share (size-1)/size leaves it.
/// `one_kernel`: written by the ranks' own kernel, not by a send to each of the others.
double AllToAllTime(const GroupNetwork& network, const Group& group, double bytes, bool one_kernel = false);
/// Between neighbours of the group, all pairs at once.
double SendTime(const GroupNetwork& network, const Group& group, double bytes);
/// The same where all wait for the slowest pair: a step round a ring.
double RingStepTime(const GroupNetwork& network, const Group& group, double bytes);
/// What a message leaves: 0 nothing, 1 the node, 1 + k also units of the innermost k tiers. `leaves`: whether it leaves a unit of so
/// many GPUs, which a message that leaves a larger one does.
template <typename Leaves>
size_t UnitsLeft(const GroupNetwork& network, const Leaves& leaves) {
  if (!leaves(network.gpus_per_node)) return 0;
  size_t left = 1;
  while (left <= network.tiers && leaves(network.above[left - 1].gpus)) ++left;
  return left;
}
/// From one of these ranks to the other.
size_t UnitsLeft(const GroupNetwork& network, int64_t rank, int64_t other);
/// A message that leaves so many units, sent by each of `stride` ranks that lie side by side; there are no more of them at a border.
double SendTime(const GroupNetwork& network, int64_t stride, size_t units_left, double bytes);
/// Of SendTime() between neighbours, the rate between nodes in byte/s.
double SendRate(const GroupNetwork& network, const Group& group);

/// The innermost tier that has every such group in one unit: 0 the node, k the k-th of `unit_gpus` (ascending GPUs of a unit), the
/// last if none has.
size_t OutermostTier(const GroupNetwork& network, const Group& group, std::span<const int64_t> unit_gpus);

}  // namespace weft::planner::collectives

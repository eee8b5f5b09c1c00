#include "planner/collectives/group_cost.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace weft::planner::inline collectives {
namespace {

std::span<const NetworkTier> Above(const GroupNetwork& network) { return std::span(network.above).first(network.tiers); }

/// Ranks of the group among `gpus` consecutive ones.
int64_t Inside(const Group& group, int64_t gpus) {
  return std::min(group.size, std::max<int64_t>(1, gpus / std::max<int64_t>(1, group.stride)));
}

/// Whether every such group lies in one unit of `gpus`: some straddle a border where their blocks do not fill units.
bool Holds(int64_t gpus, const Group& group) {
  return group.size <= 1 || (group.size * group.stride <= gpus && gpus % (group.size * group.stride) == 0);
}

struct Reach {
  double inside;   // ranks of the group in one node
  double outside;  // nodes
};
Reach ReachOf(const GroupNetwork& network, const Group& group) {
  const int64_t inside = Inside(group, network.gpus_per_node);
  return {static_cast<double>(inside), std::ceil(static_cast<double>(group.size) / static_cast<double>(inside))};
}

/// Rate at which one rank of a ring over all of the group sends. A ring leaves a unit once however many of its ranks are in it,
/// and the unit's other groups are as many as one rank of it has neighbours in other groups.
double RingRate(const GroupNetwork& network, const Group& group, const Reach& reach) {
  if (reach.outside <= 1) return network.intra_rate;
  double out = network.nic_rate * reach.inside;
  for (const NetworkTier& tier : Above(network)) {
    if (Holds(tier.gpus, group)) continue;
    // `stride` rings leave a unit, however many lie in it.
    out = std::min(out, tier.rate * static_cast<double>(std::max<int64_t>(1, tier.gpus / group.stride)));
  }
  return reach.inside > 1 ? std::min(network.intra_rate, out) : out;
}

/// Latency of a ring that passes through every rank, node after node.
double Steps(const GroupNetwork& network, const Reach& reach) {
  return reach.outside * (reach.inside - 1) * network.intra_latency + (reach.outside - 1) * network.nic_latency;
}

/// Latency of a double tree between nodes over chains inside them.
double TreeSteps(const GroupNetwork& network, const Reach& reach) {
  return (reach.inside - 1) * network.intra_latency + std::ceil(std::log2(reach.outside)) * network.nic_latency;
}

/// A tree sends every byte up and down once, at a rate somewhat below the ring's.
double TreeTime(const GroupNetwork& network, const Group& group, const Reach& reach, double bytes) {
  return 2 * TreeSteps(network, reach) + 2 * bytes / (0.85 * RingRate(network, group, reach));
}

}  // namespace

double GatherTime(const GroupNetwork& network, const Group& group, double bytes) {
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  const double n = static_cast<double>(group.size);
  return Steps(network, reach) + bytes * (n - 1) / n / RingRate(network, group, reach);
}

bool TreeIsFaster(const GroupNetwork& network, const Group& group, double bytes) {
  const Reach reach = ReachOf(network, group);
  return reach.outside > 2 && TreeTime(network, group, reach, bytes) < 2 * GatherTime(network, group, bytes);
}

double AllReduceTime(const GroupNetwork& network, const Group& group, double bytes) {
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  const double ring = 2 * GatherTime(network, group, bytes);
  return reach.outside > 2 ? std::min(ring, TreeTime(network, group, reach, bytes)) : ring;
}

double HierarchicalAllReduceTime(const GroupNetwork& network, const Group& group, double bytes) {
  const int64_t inside = Inside(group, network.gpus_per_node);
  if (inside <= 1 || inside == group.size) return AllReduceTime(network, group, bytes);
  const Group outer{group.size / inside, group.stride * inside};
  return 2 * GatherTime(network, {inside, group.stride}, bytes) + AllReduceTime(network, outer, bytes / static_cast<double>(inside));
}

double SwitchSumTime(const GroupNetwork& network, const Group& group, double bytes) {
  const int64_t inside = Inside(group, network.gpus_per_node);
  if (inside == group.size) return AllReduceTime(network, group, bytes);
  const double share = bytes / static_cast<double>(inside);
  double slowest = share / network.nic_rate;
  for (const NetworkTier& tier : Above(network)) {
    if (Inside(group, tier.gpus) == group.size) continue;
    // One sum leaves the unit for each of its groups; side by side they fill it.
    slowest = std::max(slowest, share / (tier.rate * static_cast<double>(Inside(group, tier.gpus)) / static_cast<double>(inside)));
  }
  return 2 * GatherTime(network, {inside, group.stride}, bytes) + 2 * network.nic_latency + slowest;
}

double GossipTime(const GroupNetwork& network, const Group& group, double bytes) {
  int64_t inside = Inside(group, network.gpus_per_node);
  double rate = network.nic_rate;
  for (const NetworkTier& tier : Above(network)) {
    if (Inside(group, tier.gpus) == group.size) continue;
    inside = Inside(group, tier.gpus);
    rate = std::min(rate, tier.rate);
  }
  if (inside == group.size) return AllReduceTime(network, group, bytes);
  const double share = bytes / static_cast<double>(inside);
  return AllReduceTime(network, {inside, group.stride}, bytes) + network.nic_latency + share / rate;
}

double ParameterServerTime(const GroupNetwork& network, const Group& group, double bytes) {
  const double n = static_cast<double>(group.size);
  if (group.size * group.stride <= network.gpus_per_node) {
    return 2 * (network.intra_latency + bytes * (n - 1) / n / network.direct_intra_rate);
  }
  double slowest = bytes * (n - 1) / n / network.nic_rate;
  for (const NetworkTier& tier : Above(network)) {
    slowest = std::max(slowest, bytes * (n - static_cast<double>(Inside(group, tier.gpus))) / n / tier.rate);
  }
  return 2 * (network.nic_latency + slowest);
}

double AllToAllTime(const GroupNetwork& network, const Group& group, double bytes) {
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  const double n = static_cast<double>(group.size);
  // Peers inside the node are reached by NVLink, the others by this GPU's share of the NICs and of each tier; all at once.
  double slowest = bytes * (reach.inside - 1) / n / network.direct_intra_rate;
  slowest = std::max(slowest, bytes * (n - reach.inside) / n / network.nic_rate);
  for (const NetworkTier& tier : Above(network)) {
    const double outside = n - static_cast<double>(Inside(group, tier.gpus));
    slowest = std::max(slowest, bytes * outside / n / tier.rate);
  }
  // All peers are written at once; set-up grows with their number.
  const double setup = network.intra_latency + (reach.outside > 1 ? network.nic_latency : 0) + 0.05 * network.intra_latency * n;
  return setup + slowest;
}

double SendRate(const GroupNetwork& network, const Group& group) {
  const int64_t stride = group.stride;
  double rate = network.nic_rate;
  for (const NetworkTier& tier : Above(network)) {
    if (Holds(tier.gpus, group)) continue;
    // Of a unit's ranks `stride` send out of it, and share what all of them have.
    const double crossing = std::min(1.0, static_cast<double>(stride) / static_cast<double>(tier.gpus));
    rate = std::min(rate, tier.rate / crossing);
  }
  return rate;
}

double SendTime(const GroupNetwork& network, const Group& group, double bytes) {
  if (group.stride < network.gpus_per_node) return network.intra_latency + bytes / network.direct_intra_rate;
  return network.nic_latency + bytes / SendRate(network, group);
}

double RingStepTime(const GroupNetwork& network, const Group& group, double bytes) {
  const bool leaves = group.size * group.stride > network.gpus_per_node;
  return SendTime(network, {group.size, leaves ? std::max(group.stride, network.gpus_per_node) : group.stride}, bytes);
}

size_t OutermostTier(const GroupNetwork& network, const Group& group, std::span<const int64_t> unit_gpus) {
  if (Holds(network.gpus_per_node, group)) return 0;
  size_t tier = 0;
  while (tier + 1 < unit_gpus.size() && !Holds(unit_gpus[tier], group)) ++tier;
  return tier + 1;
}

}  // namespace weft::planner::collectives

#include "planner/collectives/collective_cost.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "planner/collectives/tree_rate.h"

namespace weft::planner::inline collectives {
namespace {

std::span<const NetworkTier> Above(const GroupNetwork& network) { return std::span(network.above).first(network.tiers); }

int64_t Inside(const Group& group, int64_t gpus) { return RanksInside(group, gpus); }

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

/// What the group's ranks of one node send out of it together.
double OutRate(const GroupNetwork& network, const Group& group, const Reach& reach) {
  double out = network.nic_rate * (network.single_ring ? 1 : reach.inside);
  for (const NetworkTier& tier : Above(network)) {
    if (Holds(tier.gpus, group)) continue;
    // `stride` rings leave a unit, however many lie in it.
    out = std::min(out, tier.rate * static_cast<double>(std::max<int64_t>(1, tier.gpus / group.stride)));
  }
  return out;
}

/// Rate at which one rank of a ring over all of the group sends. A ring leaves a unit once however many of its ranks are in it,
/// and the unit's other groups are as many as one rank of it has neighbours in other groups.
double RingRate(const GroupNetwork& network, const Group& group, const Reach& reach) {
  if (reach.outside <= 1) return network.intra_rate;
  const double out = OutRate(network, group, reach);
  return reach.inside > 1 ? std::min(network.intra_rate, out) : out;
}

/// What is done one after the other: steps inside nodes and between them, and bytes over an edge of the ring.
struct Course {
  double inside = 0, outside = 0;
  double bytes = 0;
  std::array<double, kProtocols> stretch = {1, 1, 1};  // by Protocol: time on the wire over what the rate alone would take
};

/// A ring that passes through every rank `times`, node after node.
Course RingCourse(const Reach& reach, double times, double bytes) {
  return {times * reach.outside * (reach.inside - 1), times * (reach.outside - 1), bytes};
}

/// A tree sends every byte up and down once (of two nodes with one rank, one half goes each way), at a rate somewhat below the
/// ring's. Source: NCCL's tuning.cc: 0.85 of the ring's bus for a plain tree; its own limits for two and more nodes of Ampere to
/// Blackwell are 0.5 to 0.98 of it.
Course TreeCourse(const GroupNetwork& network, const Reach& reach, double bytes) {
  const double crossings = reach.outside <= 2 && reach.inside <= 1 ? 1 : 2;
  Course course{2 * (reach.inside - 1), 2 * std::ceil(std::log2(reach.outside)), crossings * bytes / 0.85};
  if (!network.has_early) return course;
  for (size_t i = 0; i < kProtocols; ++i) course.stretch[i] = 1 / TreeRateShare(static_cast<Protocol>(i), bytes);
  return course;
}

double StretchIn(const Course& course, Protocol protocol) { return course.stretch[static_cast<size_t>(protocol)]; }

double SimpleTime(const GroupNetwork& network, const Course& course, double wire) {
  return network.start + course.inside * network.intra_latency + course.outside * network.nic_latency +
         wire * StretchIn(course, Protocol::kSimple);
}

double EarlyTime(const GroupNetwork& network, Protocol protocol, const Reach& reach, const Course& course, double wire) {
  const EarlyProtocol& early = network.early[static_cast<size_t>(protocol)];
  const size_t nodes = reach.outside <= 1 ? 0 : reach.outside <= 2 ? 1 : 2;
  return early.start + course.inside * early.intra_latency + course.outside * early.nic_latency +
         StretchIn(course, protocol) * std::max(wire * early.stretch, course.bytes * early.least_per_byte[nodes]);
}

/// In the fastest protocol.
double CourseTime(const GroupNetwork& network, const Reach& reach, const Course& course, double rate) {
  const double wire = course.bytes / rate, simple = SimpleTime(network, course, wire);
  // Nothing starts so early that it makes up for what the wire takes longer.
  if (!network.has_early || wire * network.least_stretch >= simple) return simple;
  const double ll = EarlyTime(network, Protocol::kLl, reach, course, wire);
  if (!network.has_ll128) return std::min(simple, ll);
  return std::min({simple, ll, EarlyTime(network, Protocol::kLl128, reach, course, wire)});
}

/// Every GPU sends its own data to the switch and its share of the sum to all: (1 + 1/p) S. Three kinds of warps (copy in, sum,
/// copy out) pass on chunks: 128 KiB for each of 16 channels and p parts are on the way, or an eighth of the data if that is less.
/// Source: NCCL 2.30, src/device/all_reduce.h and src/enqueue.cc (nvlsChunkSize), the eighth being its rule for smaller chunks.
double NvlsTime(const GroupNetwork& network, const Group& group, const Reach& reach, double bytes) {
  double rate = network.switch_rate / (1 + 1 / reach.inside);
  double steps = 0;
  if (reach.outside > 1) {
    rate = std::min(rate, OutRate(network, group, reach) / (reach.outside <= 2 ? 1 : 2));
    steps = 2 * std::ceil(std::log2(reach.outside));
  }
  const double fill = 3 * std::min(bytes / 8, 16 * 131072.0 * reach.inside);
  return network.switch_start + steps * network.nic_latency + (bytes + fill) / rate;
}

struct Fastest {
  Algorithm algorithm;
  double seconds;
};

/// Requires: size > 1.
Fastest FastestAllReduce(const GroupNetwork& network, const Group& group, double bytes) {
  const Reach reach = ReachOf(network, group);
  const double n = static_cast<double>(group.size), rate = RingRate(network, group, reach);
  Fastest best{Algorithm::kRing, CourseTime(network, reach, RingCourse(reach, 2, 2 * bytes * (n - 1) / n), rate)};
  if (reach.outside > 1 && 2 * bytes / 0.85 < best.seconds * rate) {
    const double tree = CourseTime(network, reach, TreeCourse(network, reach, bytes), rate);
    if (tree < best.seconds) best = {Algorithm::kTree, tree};
  }
  if (network.switch_rate > 0 && reach.inside > 1) {
    const double nvls = NvlsTime(network, group, reach, bytes);
    if (nvls < best.seconds) best = {reach.outside > 1 ? Algorithm::kNvlsTree : Algorithm::kNvls, nvls};
  }
  return best;
}

/// Of a unit's ranks `stride` send out of it, and share what all of them have.
double CrossingRate(const NetworkTier& tier, int64_t stride) {
  return tier.rate / std::min(1.0, static_cast<double>(stride) / static_cast<double>(tier.gpus));
}

}  // namespace

int64_t RanksInside(const Group& group, int64_t gpus) {
  return std::min(group.size, std::max<int64_t>(1, gpus / std::max<int64_t>(1, group.stride)));
}

double GatherTime(const GroupNetwork& network, const Group& group, double bytes) {
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  const double n = static_cast<double>(group.size);
  return CourseTime(network, reach, RingCourse(reach, 1, bytes * (n - 1) / n), RingRate(network, group, reach));
}

double AllReduceTime(const GroupNetwork& network, const Group& group, double bytes) {
  return group.size <= 1 ? 0 : FastestAllReduce(network, group, bytes).seconds;
}

Algorithm AllReduceAlgorithm(const GroupNetwork& network, const Group& group, double bytes) {
  return group.size <= 1 ? Algorithm::kRing : FastestAllReduce(network, group, bytes).algorithm;
}

std::optional<double> CollectiveTime(const GroupNetwork& network, const Group& group, Collective collective, Algorithm algorithm,
                                     Protocol protocol, double bytes) {
  const bool sums = collective == Collective::kAllReduce;
  const bool halves = collective == Collective::kAllGather || collective == Collective::kReduceScatter;
  if (!sums && !halves && collective != Collective::kBroadcast) return std::nullopt;
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  const double n = static_cast<double>(group.size), rate = RingRate(network, group, reach);
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    const bool across = algorithm == Algorithm::kNvlsTree;
    if (!sums || protocol != Protocol::kSimple || !(network.switch_rate > 0) || reach.inside <= 1 || across != (reach.outside > 1)) {
      return std::nullopt;
    }
    return NvlsTime(network, group, reach, bytes);
  }
  Course course = RingCourse(reach, sums ? 2 : 1, collective == Collective::kBroadcast ? bytes : (sums ? 2 : 1) * bytes * (n - 1) / n);
  if (algorithm == Algorithm::kTree && sums) course = TreeCourse(network, reach, bytes);
  else if (algorithm != Algorithm::kRing) return std::nullopt;
  const double wire = course.bytes / rate;
  if (protocol == Protocol::kSimple) return SimpleTime(network, course, wire);
  if (!network.has_early || (protocol == Protocol::kLl128 && !network.has_ll128)) return std::nullopt;
  return EarlyTime(network, protocol, reach, course, wire);
}

double CollectiveTime(const GroupNetwork& network, const Group& group, Collective collective, double bytes) {
  switch (collective) {
    case Collective::kAllReduce: return AllReduceTime(network, group, bytes);
    case Collective::kAllGather:
    case Collective::kReduceScatter: return GatherTime(network, group, bytes);
    case Collective::kAllToAll: return AllToAllTime(network, group, bytes);
    case Collective::kSendRecv: return RingStepTime(network, group, bytes);
    case Collective::kBroadcast: break;
  }
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  return CourseTime(network, reach, RingCourse(reach, 1, bytes), RingRate(network, group, reach));
}

double HierarchicalAllReduceTime(const GroupNetwork& network, const Group& group, double bytes) {
  const int64_t inside = Inside(group, network.gpus_per_node);
  // A hierarchy is of groups of one size.
  if (inside <= 1 || group.size % inside != 0 || inside == group.size) return AllReduceTime(network, group, bytes);
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

int64_t GossipUnit(const GroupNetwork& network, const Group& group) {
  int64_t inside = Inside(group, network.gpus_per_node);
  for (const NetworkTier& tier : Above(network)) {
    if (Inside(group, tier.gpus) < group.size) inside = Inside(group, tier.gpus);
  }
  return inside;
}

double GossipTime(const GroupNetwork& network, const Group& group, double bytes) {
  const int64_t inside = GossipUnit(network, group);
  double rate = network.nic_rate;
  for (const NetworkTier& tier : Above(network)) {
    if (Inside(group, tier.gpus) < group.size) rate = std::min(rate, tier.rate);
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

double AllToAllTime(const GroupNetwork& network, const Group& group, double bytes, bool one_kernel) {
  if (group.size <= 1) return 0;
  const Reach reach = ReachOf(network, group);
  const double n = static_cast<double>(group.size);
  // Peers inside the node are reached by NVLink, the others by this GPU's share of the NICs and of each tier; all at once.
  double slowest = bytes * (reach.inside - 1) / n / network.direct_intra_rate;
  slowest = std::max(slowest, bytes * (n - reach.inside) / n / (network.nic_rate * network.direct_nic_share));
  for (const NetworkTier& tier : Above(network)) {
    const double outside = n - static_cast<double>(Inside(group, tier.gpus));
    slowest = std::max(slowest, bytes * outside / n / tier.rate);
  }
  // All peers are written at once; set-up grows with their number.
  const double step = network.has_early ? network.early[static_cast<size_t>(Protocol::kLl)].nic_latency : network.nic_latency;
  const double setup = network.start + network.intra_latency + (reach.outside > 1 ? step : 0) +
                       0.05 * network.intra_latency * n + (one_kernel ? 0 : network.peer_latency * (n - reach.inside));
  return setup + slowest;
}

double SendRate(const GroupNetwork& network, const Group& group) {
  double rate = network.nic_rate;
  for (const NetworkTier& tier : Above(network)) {
    if (!Holds(tier.gpus, group)) rate = std::min(rate, CrossingRate(tier, group.stride));
  }
  return rate;
}

size_t UnitsLeft(const GroupNetwork& network, int64_t rank, int64_t other) {
  return UnitsLeft(network, [&](int64_t gpus) { return rank / gpus != other / gpus; });
}

double SendTime(const GroupNetwork& network, int64_t stride, size_t units_left, double bytes) {
  if (units_left == 0) return network.intra_latency + bytes / network.direct_intra_rate;
  double rate = network.nic_rate;
  for (const NetworkTier& tier : Above(network).first(units_left - 1)) rate = std::min(rate, CrossingRate(tier, stride));
  return network.nic_latency + bytes / rate;
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

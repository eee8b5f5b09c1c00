#include "planner/collectives/schedule_cost.h"

#include <algorithm>
#include <cmath>

#include "planner/collectives/group_exchange.h"
#include "planner/collectives/parameter_server.h"

namespace weft::planner::inline collectives {
namespace {

// Times and amounts are plain seconds and bytes.
struct Wire {
  double latency, per_byte;
};

/// Ranks that fill groups (nodes) one after the other.
struct Place {
  int32_t ranks, group, groups;
  Wire inner, outer;

  /// The slower of the two in each respect: what a step costs that some rank takes across groups.
  Wire Slowest() const {
    if (groups == 1) return inner;
    return group == 1 ? outer : Wire{std::max(inner.latency, outer.latency), std::max(inner.per_byte, outer.per_byte)};
  }
};

Place PlaceOf(const GroupNetwork& network, int32_t ranks) {
  const auto group = static_cast<int32_t>(std::min<int64_t>(ranks, network.gpus_per_node));
  return {ranks, group, (ranks + group - 1) / group, {network.intra_latency, 1 / network.intra_rate},
          {network.nic_latency, 1 / network.nic_rate}};
}

double PatternTime(GroupPattern pattern, int32_t p, double bytes, Wire wire) {
  if (p <= 1) return 0;
  const double moved = (p - 1.0) / p * bytes * wire.per_byte;
  switch (pattern) {
    case GroupPattern::kRing: return (p - 1) * wire.latency + moved;
    case GroupPattern::kHalving: return std::ceil(std::log2(p)) * wire.latency + moved;
    case GroupPattern::kDirect: return wire.latency + moved;
  }
  return 0;
}

/// One pass of the halving: a round whose distance leaves the node goes by the outer link.
double HalvingPass(const Place& at, double bytes) {
  double time = 0;
  for (int32_t before = at.ranks, skip = 0; before > 1; before = skip) {
    skip = (before + 1) / 2;
    const bool power = (at.ranks & (at.ranks - 1)) == 0 && at.ranks % at.group == 0;
    const bool inside = at.groups == 1 || (power && skip < at.group);
    const Wire wire = inside ? at.inner : at.Slowest();
    time += wire.latency + (before - skip) * bytes / at.ranks * wire.per_byte;
  }
  return time;
}

/// Everybody to everybody: both ports at the same time.
double DirectPass(const Place& at, double bytes, int32_t servers) {
  const int32_t group = at.group;
  const double inside = PatternTime(GroupPattern::kDirect, group, bytes * group / servers, at.inner);
  if (at.groups == 1) return inside;
  const Wire outer = at.outer;
  const double across = outer.latency + (at.ranks - group) * bytes / servers * outer.per_byte;
  return std::max(inside, across);
}

/// A square of rings: both halves of the data meet the same two lengths in the other order.
double TorusPass(const Place& at, double bytes, int32_t width) {
  const int32_t height = at.ranks / width;
  const bool two_ports = at.group == width && at.groups > 1;
  const Wire row = at.inner, column = two_ports ? at.outer : at.Slowest();
  const Wire own_row = two_ports || at.groups == 1 ? row : at.Slowest();
  const auto ring = [](int32_t p, double data, Wire wire) { return PatternTime(GroupPattern::kRing, p, data, wire); };
  const double x_first = ring(width, bytes / 2, own_row), y_second = ring(height, bytes / 2 / width, column);
  const double y_first = ring(height, bytes / 2, column), x_second = ring(width, bytes / 2 / height, own_row);
  if (!two_ports) {  // the halves share every port: the latencies overlap, the bytes do not
    const double n = at.ranks, longest = std::max(width, height) - 1;
    return std::max((n - 1) / n * bytes * column.per_byte + 2 * column.latency, 2 * longest * column.latency);
  }
  return std::max(x_first, y_first) + std::max(y_second, x_second);
}

double HierarchicalPass(const Place& at, double bytes, int32_t group) {
  const int32_t own = std::min(group, at.ranks);
  const int32_t groups = (at.ranks + group - 1) / group;
  const bool fits = at.groups == 1 || at.group % group == 0;
  const Wire inner = fits ? at.inner : at.Slowest();
  const int32_t least = groups > 1 ? at.ranks - (groups - 1) * group : own;  // the smallest group carries the most
  return PatternTime(GroupPattern::kDirect, own, bytes, inner) +
         PatternTime(GroupPattern::kRing, groups, bytes / std::min(own, least), at.Slowest());
}

double ToAllTime(const AlgorithmSpec& spec, const Place& at, double bytes) {
  const Wire slowest = at.Slowest();
  const double n = at.ranks;
  if (spec.algorithm == Algorithm::kPairwise) return (n - 1) * (slowest.latency + bytes / n * slowest.per_byte);
  if (spec.algorithm != Algorithm::kHierarchical) return DirectPass(at, bytes, at.ranks);
  const int32_t group = std::min(spec.parameter, at.ranks);
  const int32_t groups = (at.ranks + group - 1) / group;
  return PatternTime(GroupPattern::kDirect, group, bytes, at.inner) +
         PatternTime(GroupPattern::kDirect, groups, bytes, slowest);
}

/// Up and down a tree of depth h in k slices of half the data: every rank sends and receives each half twice, 4 k slices,
/// and an inner node takes its two children in turn at each of the h - 1 levels between root and leaves.
double TreeTime(const Place& at, double bytes, bool reduces, int32_t slices) {
  const Wire wire = at.Slowest();
  const double depth = std::floor(std::log2(at.ranks));
  const double slice = bytes / 2 / slices * wire.per_byte;
  if (!reduces) return (depth + 1) * (wire.latency + slice) + 2 * slice * slices;
  if (at.ranks == 2) return 2 * wire.latency + 2 * slice * slices;
  return 2 * depth * wire.latency + (4 * slices + std::max(0.0, 4 * depth - 6)) * slice;
}

double ReduceTime(const AlgorithmSpec& spec, const GroupNetwork& network, const Place& at, double bytes, int32_t slices) {
  switch (spec.algorithm) {
    case Algorithm::kTree: return TreeTime(at, bytes, true, slices) / 2;
    case Algorithm::kHalvingDoubling: return HalvingPass(at, bytes);
    case Algorithm::kHierarchical: return HierarchicalPass(at, bytes, spec.parameter);
    case Algorithm::kTorus: return TorusPass(at, bytes, spec.parameter);
    case Algorithm::kDirect: return DirectPass(at, bytes, at.ranks);
    case Algorithm::kParameterServer:
      if (at.groups > 1) return DirectPass(at, bytes, spec.parameter);
      return ParameterServerTime(at.ranks, spec.parameter, Bytes(static_cast<int64_t>(bytes)),
                                 BitsPerSecond(8 * network.intra_rate), Seconds(network.intra_latency)).count() / 2;
    default: return GatherTime(network, {at.ranks, 1}, bytes);
  }
}

}  // namespace

Result<Seconds> AlgorithmTime(const AlgorithmSpec& asked, Collective collective, const GroupNetwork& network, int32_t ranks,
                              Bytes size, int32_t slices) {
  WEFT_ASSIGN_OR_RETURN(const AlgorithmSpec spec, WithParameter(asked, collective, ranks));
  if (spec.algorithm == Algorithm::kForest) {
    return Fail(Code::kUnimplemented, "algorithm \"forest\": no closed form, its time is that of its packing");
  }
  if (ranks == 1) return Seconds(0);
  const auto bytes = static_cast<double>(size.count());
  const Place at = PlaceOf(network, ranks);
  const Wire slowest = at.Slowest();
  switch (collective) {
    case Collective::kAllReduce: return Seconds(2 * ReduceTime(spec, network, at, bytes, slices));
    case Collective::kReduceScatter:
    case Collective::kAllGather: return Seconds(ReduceTime(spec, network, at, bytes, slices));
    case Collective::kAllToAll: return Seconds(ToAllTime(spec, at, bytes));
    case Collective::kBroadcast:
      if (spec.algorithm == Algorithm::kTree) return Seconds(TreeTime(at, bytes, false, slices));
      return Seconds((ranks - 1) * slowest.latency + (ranks - 2.0 + slices) * (bytes / slices) * slowest.per_byte);
    case Collective::kSendRecv: return Seconds(slowest.latency + bytes * slowest.per_byte);
  }
  return Fail(Code::kInternal, "collective without a cost");
}

GroupNetwork NetworkOf(const CommunicatorShape& shape) {
  const double inner = shape.inner.rate.bytes_per_second();
  return {.gpus_per_node = shape.group_size(), .intra_rate = inner, .nic_rate = shape.outer.rate.bytes_per_second(),
          .intra_latency = shape.inner.latency.count(), .nic_latency = shape.outer.latency.count(), .direct_intra_rate = inner,
          .single_ring = true};
}

}  // namespace weft::planner::collectives

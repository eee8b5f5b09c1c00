#include "planner/collectives/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "planner/collectives/all_to_all.h"
#include "planner/collectives/group_exchange.h"
#include "planner/collectives/packed_schedule.h"
#include "planner/collectives/parameter_server.h"
#include "planner/collectives/ring.h"
#include "planner/collectives/tree.h"

namespace weft::planner::inline collectives {
namespace {

struct NamedAlgorithm {
  std::string_view name;
  Algorithm algorithm;
};

constexpr std::array kAlgorithms = {
    NamedAlgorithm{"ring", Algorithm::kRing},
    NamedAlgorithm{"tree", Algorithm::kTree},
    NamedAlgorithm{"halving-doubling", Algorithm::kHalvingDoubling},
    NamedAlgorithm{"hierarchical", Algorithm::kHierarchical},
    NamedAlgorithm{"torus", Algorithm::kTorus},
    NamedAlgorithm{"direct", Algorithm::kDirect},
    NamedAlgorithm{"pairwise", Algorithm::kPairwise},
    NamedAlgorithm{"ps", Algorithm::kParameterServer},
    NamedAlgorithm{"pipelined", Algorithm::kPipelined},
    NamedAlgorithm{"forest", Algorithm::kForest},
};

bool Knows(Algorithm algorithm, Collective collective) {
  const bool reduces = collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
                       collective == Collective::kAllGather;
  switch (algorithm) {
    case Algorithm::kRing: return true;
    case Algorithm::kTree: return collective == Collective::kAllReduce || collective == Collective::kBroadcast;
    case Algorithm::kHalvingDoubling:
    case Algorithm::kTorus:
    case Algorithm::kForest: return reduces;
    case Algorithm::kHierarchical:
    case Algorithm::kDirect: return reduces || collective == Collective::kAllToAll;
    case Algorithm::kPairwise: return collective == Collective::kAllToAll;
    case Algorithm::kParameterServer: return collective == Collective::kAllReduce;
    case Algorithm::kPipelined: return collective == Collective::kBroadcast;
  }
  return false;
}

int32_t LargestDivisorToRoot(int32_t ranks) {
  int32_t best = 1;
  for (int32_t d = 1; d * d <= ranks; ++d) {
    if (ranks % d == 0) best = d;
  }
  return best;
}

/// The parameter that a 0 stands for.
int32_t Parameter(const AlgorithmSpec& spec, Collective collective, int32_t ranks) {
  if (spec.parameter > 0) return spec.parameter;
  const auto root = static_cast<int32_t>(std::ceil(std::sqrt(std::max(1, ranks))));
  const bool ragged = collective == Collective::kAllReduce || collective == Collective::kAllToAll;
  switch (spec.algorithm) {
    case Algorithm::kHierarchical: return ragged ? root : LargestDivisorToRoot(ranks);
    case Algorithm::kForest: return root;
    case Algorithm::kTorus: return LargestDivisorToRoot(ranks);
    case Algorithm::kParameterServer: return ranks;
    default: return 0;
  }
}

/// Inside groups everybody reaches everybody; across them rings need the fewest connections.
constexpr GroupPattern kInside = GroupPattern::kDirect;
constexpr GroupPattern kAcross = GroupPattern::kRing;

Schedule Named(Schedule schedule, Algorithm algorithm) {
  schedule.algorithm = AlgorithmName(algorithm);
  return schedule;
}

Status CheckKnown(const AlgorithmSpec& spec, Collective collective, int32_t ranks, RankId root) {
  if (ranks < 1 || root.value() < 0 || root.value() >= ranks) {
    return Fail(Code::kInvalidArgument, fmt::format("{} {}: {} ranks, root {}, expected at least 1 and a root below it",
                                                    AlgorithmName(spec.algorithm), CollectiveName(collective), ranks,
                                                    root.value()));
  }
  if (Knows(spec.algorithm, collective)) return Ok();
  std::string known;
  for (const Algorithm algorithm : AlgorithmsFor(collective)) {
    known += (known.empty() ? "" : ", ") + std::string(AlgorithmName(algorithm));
  }
  return Fail(Code::kInvalidArgument, fmt::format("algorithm \"{}\" for {}: expected one of {}",
                                                  AlgorithmName(spec.algorithm), CollectiveName(collective), known));
}

// ---- closed forms; times and amounts are plain seconds and bytes from here on

struct Wire {
  double latency, per_byte;
};
Wire WireOf(const LinkCost& link) { return {link.latency.count(), 1 / link.rate.bytes_per_second()}; }
/// The slower of the two in each respect: what a step costs that some rank takes across groups.
Wire Slowest(const CommunicatorShape& shape) {
  const Wire inner = WireOf(shape.inner);
  if (shape.groups() == 1) return inner;
  const Wire outer = WireOf(shape.outer);
  return shape.group_size() == 1
             ? outer
             : Wire{std::max(inner.latency, outer.latency), std::max(inner.per_byte, outer.per_byte)};
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

/// One pass of the ring: n-1 hops per chunk, of which all but one per group stay inside.
double RingPass(const CommunicatorShape& shape, double bytes) {
  const Wire slowest = Slowest(shape);
  const double n = shape.ranks;
  const double outer_hops = shape.groups() > 1 ? shape.groups() - 1 : 0;
  return (n - 1 - outer_hops) * (shape.group_size() == 1 ? 0 : WireOf(shape.inner).latency) +
         outer_hops * WireOf(shape.outer).latency + (n - 1) * bytes / n * slowest.per_byte;
}

/// One pass of the halving: a round whose distance leaves the group goes by the outer link.
double HalvingPass(const CommunicatorShape& shape, double bytes) {
  double time = 0;
  for (int32_t before = shape.ranks, skip = 0; before > 1; before = skip) {
    skip = (before + 1) / 2;
    const bool power = (shape.ranks & (shape.ranks - 1)) == 0 && shape.ranks % shape.group_size() == 0;
    const bool inside = shape.groups() == 1 || (power && skip < shape.group_size());
    const Wire wire = inside ? WireOf(shape.inner) : Slowest(shape);
    time += wire.latency + (before - skip) * bytes / shape.ranks * wire.per_byte;
  }
  return time;
}

/// Everybody to everybody: both ports at the same time.
double DirectPass(const CommunicatorShape& shape, double bytes, int32_t servers) {
  const int32_t group = shape.group_size();
  const double inside = PatternTime(GroupPattern::kDirect, group, bytes * group / servers, WireOf(shape.inner));
  if (shape.groups() == 1) return inside;
  const Wire outer = WireOf(shape.outer);
  const double across = outer.latency + (shape.ranks - group) * bytes / servers * outer.per_byte;
  return std::max(inside, across);
}

/// A square of rings: both halves of the data meet the same two lengths in the other order.
double TorusPass(const CommunicatorShape& shape, double bytes, int32_t width) {
  const int32_t height = shape.ranks / width;
  const bool two_ports = shape.group_size() == width && shape.groups() > 1;
  const Wire row = WireOf(shape.inner), column = two_ports ? WireOf(shape.outer) : Slowest(shape);
  const Wire own_row = two_ports || shape.groups() == 1 ? row : Slowest(shape);
  const auto ring = [](int32_t p, double data, Wire wire) { return PatternTime(GroupPattern::kRing, p, data, wire); };
  const double x_first = ring(width, bytes / 2, own_row), y_second = ring(height, bytes / 2 / width, column);
  const double y_first = ring(height, bytes / 2, column), x_second = ring(width, bytes / 2 / height, own_row);
  if (!two_ports) {  // the halves share every port: the latencies overlap, the bytes do not
    const double n = shape.ranks, longest = std::max(width, height) - 1;
    return std::max((n - 1) / n * bytes * column.per_byte + 2 * column.latency, 2 * longest * column.latency);
  }
  return std::max(x_first, y_first) + std::max(y_second, x_second);
}

double HierarchicalPass(const CommunicatorShape& shape, double bytes, int32_t group) {
  const int32_t own = std::min(group, shape.ranks);
  const int32_t groups = (shape.ranks + group - 1) / group;
  const bool fits = shape.groups() == 1 || shape.group_size() % group == 0;
  const Wire inner = fits ? WireOf(shape.inner) : Slowest(shape);
  const int32_t least = groups > 1 ? shape.ranks - (groups - 1) * group : own;  // the smallest group carries the most
  return PatternTime(kInside, own, bytes, inner) +
         PatternTime(kAcross, groups, bytes / std::min(own, least), Slowest(shape));
}

double AllToAllTime(const AlgorithmSpec& spec, const CommunicatorShape& shape, double bytes) {
  const Wire slowest = Slowest(shape);
  const double n = shape.ranks;
  if (spec.algorithm == Algorithm::kPairwise) return (n - 1) * (slowest.latency + bytes / n * slowest.per_byte);
  if (spec.algorithm != Algorithm::kHierarchical) return DirectPass(shape, bytes, shape.ranks);
  const int32_t group = std::min(spec.parameter, shape.ranks);
  const int32_t groups = (shape.ranks + group - 1) / group;
  return PatternTime(GroupPattern::kDirect, group, bytes, WireOf(shape.inner)) +
         PatternTime(GroupPattern::kDirect, groups, bytes, slowest);
}

/// Up and down a tree of depth h in k slices of half the data: every rank sends and receives each half twice, 4 k slices,
/// and an inner node takes its two children in turn at each of the h - 1 levels between root and leaves.
double TreeTime(const CommunicatorShape& shape, double bytes, bool reduces, int32_t slices) {
  const Wire wire = Slowest(shape);
  const double depth = std::floor(std::log2(shape.ranks));
  const double slice = bytes / 2 / slices * wire.per_byte;
  if (!reduces) return (depth + 1) * (wire.latency + slice) + 2 * slice * slices;
  if (shape.ranks == 2) return 2 * wire.latency + 2 * slice * slices;
  return 2 * depth * wire.latency + (4 * slices + std::max(0.0, 4 * depth - 6)) * slice;
}

double ReduceTime(const AlgorithmSpec& spec, const CommunicatorShape& shape, double bytes, int32_t slices) {
  switch (spec.algorithm) {
    case Algorithm::kTree: return TreeTime(shape, bytes, true, slices) / 2;
    case Algorithm::kHalvingDoubling: return HalvingPass(shape, bytes);
    case Algorithm::kHierarchical: return HierarchicalPass(shape, bytes, spec.parameter);
    case Algorithm::kTorus: return TorusPass(shape, bytes, spec.parameter);
    case Algorithm::kDirect: return DirectPass(shape, bytes, shape.ranks);
    case Algorithm::kParameterServer:
      if (shape.groups() > 1) return DirectPass(shape, bytes, spec.parameter);
      return ParameterServerTime(shape.ranks, spec.parameter, Bytes(static_cast<int64_t>(bytes)), shape.inner.rate,
                                 shape.inner.latency).count() / 2;
    default: return RingPass(shape, bytes);
  }
}

}  // namespace

std::string_view AlgorithmName(Algorithm algorithm) {
  for (const NamedAlgorithm& known : kAlgorithms) {
    if (known.algorithm == algorithm) return known.name;
  }
  return "unknown";
}

Result<AlgorithmSpec> ParseAlgorithm(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  std::string accepted;
  for (const NamedAlgorithm& known : kAlgorithms) {
    accepted += (accepted.empty() ? "" : ", ") + std::string(known.name);
    if (known.name != name) continue;
    AlgorithmSpec spec{.algorithm = known.algorithm};
    if (colon == std::string_view::npos) return spec;
    const std::string_view number = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), spec.parameter);
    const bool takes = Parameter({known.algorithm, 0}, Collective::kAllReduce, 4) != 0;
    if (error == std::errc() && end == number.data() + number.size() && spec.parameter > 0 && takes) return spec;
    return Fail(Code::kInvalidArgument, fmt::format("algorithm \"{}\": expected {} and a positive number behind it", text,
                                                    "hierarchical, torus, ps or forest"));
  }
  return Fail(Code::kInvalidArgument, fmt::format("algorithm \"{}\": expected one of {}", name, accepted));
}

std::string ToString(const AlgorithmSpec& spec) {
  if (spec.parameter == 0) return std::string(AlgorithmName(spec.algorithm));
  return fmt::format("{}:{}", AlgorithmName(spec.algorithm), spec.parameter);
}

std::vector<Algorithm> AlgorithmsFor(Collective collective) {
  std::vector<Algorithm> known;
  for (const NamedAlgorithm& named : kAlgorithms) {
    if (Knows(named.algorithm, collective)) known.push_back(named.algorithm);
  }
  return known;
}

Result<Schedule> MakeSchedule(const AlgorithmSpec& spec, Collective collective, int32_t ranks, RankId root) {
  WEFT_RETURN_IF_ERROR(CheckKnown(spec, collective, ranks, root));
  const int32_t parameter = Parameter(spec, collective, ranks);
  const auto flat = [&](GroupPattern pattern) {
    return Named(BuildLevels(FlatLevels(collective, pattern, ranks)), spec.algorithm);
  };
  const auto levels = [&](const Result<LevelPlan>& plan) -> Result<Schedule> {
    if (!plan) return Fail(plan.error());
    return Named(BuildLevels(*plan), spec.algorithm);
  };
  const bool to_all = collective == Collective::kAllToAll;
  switch (spec.algorithm) {
    case Algorithm::kRing: return RingSchedule(collective, ranks, root);
    case Algorithm::kTree: return TreeSchedule(collective, ranks, root);
    case Algorithm::kHalvingDoubling: return flat(GroupPattern::kHalving);
    case Algorithm::kDirect: return to_all ? DirectAllToAll(ranks) : flat(GroupPattern::kDirect);
    case Algorithm::kPairwise: return PairwiseAllToAll(ranks);
    case Algorithm::kHierarchical:
      return to_all ? HierarchicalAllToAll(ranks, parameter)
                    : levels(HierarchicalLevels(collective, ranks, parameter, kInside, kAcross));
    case Algorithm::kTorus: return levels(TorusLevels(collective, ranks, parameter));
    case Algorithm::kParameterServer: return ParameterServerSchedule(collective, ranks, parameter);
    case Algorithm::kPipelined: {
      WEFT_ASSIGN_OR_RETURN(Schedule chain, RingSchedule(collective, ranks, root));
      return Named(std::move(chain), spec.algorithm);
    }
    case Algorithm::kForest: return PackedGroupsSchedule(collective, ranks, parameter);
  }
  return Fail(Code::kInternal, "algorithm without a schedule");
}

Result<Seconds> AlgorithmTime(const AlgorithmSpec& asked, Collective collective, const CommunicatorShape& shape,
                              Bytes size, int32_t slices) {
  WEFT_RETURN_IF_ERROR(CheckKnown(asked, collective, shape.ranks, RankId(0)));
  const AlgorithmSpec spec{asked.algorithm, Parameter(asked, collective, shape.ranks)};
  if (spec.algorithm == Algorithm::kForest) {
    return Fail(Code::kUnimplemented, "algorithm \"forest\": no closed form, its time is that of its packing");
  }
  if (shape.ranks == 1) return Seconds(0);
  const auto bytes = static_cast<double>(size.count());
  const double n = shape.ranks;
  const Wire slowest = Slowest(shape);
  switch (collective) {
    case Collective::kAllReduce: return Seconds(2 * ReduceTime(spec, shape, bytes, slices));
    case Collective::kReduceScatter:
    case Collective::kAllGather: return Seconds(ReduceTime(spec, shape, bytes, slices));
    case Collective::kAllToAll: return Seconds(AllToAllTime(spec, shape, bytes));
    case Collective::kBroadcast:
      if (spec.algorithm == Algorithm::kTree) return Seconds(TreeTime(shape, bytes, false, slices));
      return Seconds((n - 1) * slowest.latency + (n - 2 + slices) * (bytes / slices) * slowest.per_byte);
    case Collective::kSendRecv: return Seconds(slowest.latency + bytes * slowest.per_byte);
  }
  return Fail(Code::kInternal, "collective without a cost");
}

}  // namespace weft::planner::collectives

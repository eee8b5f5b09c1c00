#include "planner/collectives/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "planner/collectives/schedule_cost.h"
#include "planner/fabric/path_catalog.h"
#include "planner/network/max_min.h"

namespace weft::planner::inline collectives {
namespace {

struct Pair {
  size_t from, to;         // ranks
};

struct Level {
  BitsPerSecond rate;      // of the slowest transfer
  bool network = false;    // some transfer leaves its host
};

/// Everybody to everybody inside each group.
std::vector<Pair> Inside(size_t ranks, size_t group) {
  std::vector<Pair> pairs;
  for (size_t from = 0; from < ranks; ++from) {
    const size_t first = from - from % group;
    for (size_t to = first; to < first + group; ++to) {
      if (to != from) pairs.push_back({from, to});
    }
  }
  return pairs;
}

/// A ring of groups for every place in them; group 1: one ring of all ranks.
std::vector<Pair> Across(size_t ranks, size_t group) {
  std::vector<Pair> pairs;
  for (size_t from = 0; from < ranks; ++from) pairs.push_back({from, (from + group) % ranks});
  return pairs;
}

class Grouper {
 public:
  Grouper(const Topology& topology, std::span<const NodeId> gpus)
      : topology_(topology), gpus_(gpus), catalog_(topology) {
    for (const Link& link : topology.links()) capacity_.push_back(link.capacity);
  }

  /// All transfers at once.
  Result<Level> Run(const std::vector<Pair>& pairs) {
    std::vector<std::vector<LinkId>> paths;
    std::vector<double> used(capacity_.size(), 0);
    for (const Pair& pair : pairs) {
      const NodeId from = gpus_[pair.from], to = gpus_[pair.to];
      std::vector<std::vector<LinkId>> found = catalog_.Paths(from, to);
      if (found.empty()) {
        return Fail(Code::kInvalidArgument, fmt::format("levels of a collective: no path from {} to {}",
                                                        topology_.node(from).name, topology_.node(to).name));
      }
      paths.push_back(std::move(found[LeastUsed(found, used)]));
      for (const LinkId link : paths.back()) used[link.index()] += 1;
    }
    Level level{.rate = BitsPerSecond(1e300)};
    std::vector<MaxMinFlow> flows;
    for (const std::vector<LinkId>& path : paths) {
      flows.push_back({.links = path});
      for (const LinkId link : path) level.network |= topology_.link(link).kind == LinkKind::kNetwork;
    }
    for (const BitsPerSecond rate : MaxMinRates(capacity_, flows)) level.rate = std::min(level.rate, rate);
    return level;
  }

 private:
  /// The path whose worst link would have most capacity per transfer: equal NICs and spines in turn, slow ones spared.
  size_t LeastUsed(const std::vector<std::vector<LinkId>>& paths, const std::vector<double>& used) const {
    size_t best = 0;
    double most = -1;
    for (size_t p = 0; p < paths.size(); ++p) {
      double worst = std::numeric_limits<double>::infinity();
      for (const LinkId link : paths[p]) {
        worst = std::min(worst, capacity_[link.index()].value() / (used[link.index()] + 1));
      }
      if (worst > most) best = p, most = worst;
    }
    return best;
  }

  const Topology& topology_;
  const std::span<const NodeId> gpus_;
  PathCatalog catalog_;
  std::vector<BitsPerSecond> capacity_;
};

/// Larger groups would need all pairs of hundreds of ranks, which no host has.
constexpr size_t kLargestGroup = 72;

}  // namespace

Result<std::vector<GroupingCost>> ChooseGrouping(const Topology& topology, std::span<const NodeId> gpus,
                                                 Collective collective, Bytes bytes, const GroupingOptions& options) {
  const size_t n = gpus.size();
  if (n < 2) {
    return Fail(Code::kInvalidArgument, fmt::format("levels of a collective: {} ranks, expected at least 2", n));
  }
  Grouper grouper(topology, gpus);
  const auto link = [&](const Level& level) {
    return LinkCost{level.network ? options.outer_latency : options.inner_latency, level.rate};
  };
  std::vector<GroupingCost> costs;
  const auto add = [&](AlgorithmSpec spec, const LinkCost& inner, const LinkCost& outer, int32_t group) -> Status {
    if (!(inner.rate.value() > 0) || !(outer.rate.value() > 0)) return Ok();  // over a dead link: no candidate
    const CommunicatorShape shape{.ranks = static_cast<int32_t>(n), .group = group, .inner = inner, .outer = outer};
    WEFT_ASSIGN_OR_RETURN(const Seconds time, AlgorithmTime(spec, collective, NetworkOf(shape), shape.ranks, bytes));
    costs.push_back({spec, time, group > 0 ? inner.rate : BitsPerSecond(0), outer.rate});
    return Ok();
  };
  WEFT_ASSIGN_OR_RETURN(const Level flat, grouper.Run(Across(n, 1)));
  WEFT_RETURN_IF_ERROR(add({Algorithm::kRing, 0}, link(flat), link(flat), 0));
  for (size_t group = 2; group < n && group <= kLargestGroup; ++group) {
    if (n % group != 0) continue;
    WEFT_ASSIGN_OR_RETURN(Level inner, grouper.Run(Inside(n, group)));
    WEFT_ASSIGN_OR_RETURN(const Level outer, grouper.Run(Across(n, group)));
    inner.rate = inner.rate * static_cast<double>(group - 1);  // of a rank, which sends to so many at once
    const auto size = static_cast<int32_t>(group);
    WEFT_RETURN_IF_ERROR(add({Algorithm::kHierarchical, size}, link(inner), link(outer), size));
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const GroupingCost& a, const GroupingCost& b) { return a.time < b.time; });
  if (costs.empty()) {
    return Fail(Code::kInvalidArgument, "levels of a collective: every way crosses a dead link");
  }
  return costs;
}

}  // namespace weft::planner::collectives

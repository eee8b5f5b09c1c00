#include "planner/jobs/simulate/job_traffic.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner/collectives/tree.h"

namespace weft::planner::inline jobs {
namespace {

/// `bytes` · factor / divisor without losing whole bytes to an overflow.
Bytes Share(Bytes bytes, int64_t factor, int64_t divisor) {
  return Bytes(bytes.count() / divisor * factor + bytes.count() % divisor * factor / divisor);
}

std::vector<PairBytes> TreeTraffic(int32_t ends, Bytes bytes) {
  std::map<std::pair<int32_t, int32_t>, Bytes> sums;
  for (const RankTree& tree : DoubleBinaryTree(ends)) {
    for (int32_t child = 0; child < ends; ++child) {
      const int32_t parent = tree.parent[static_cast<size_t>(child)];
      if (parent < 0) continue;
      sums[{child, parent}] += bytes / 2;
      sums[{parent, child}] += bytes / 2;
    }
  }
  std::vector<PairBytes> pairs;
  for (const auto& [ends_of_pair, sum] : sums) pairs.push_back({ends_of_pair.first, ends_of_pair.second, sum});
  return pairs;
}

}  // namespace

std::optional<TrafficPattern> ParseTrafficPattern(std::string_view text) {
  if (text == "ring") return TrafficPattern::kRing;
  if (text == "tree") return TrafficPattern::kTree;
  if (text == "all-to-all") return TrafficPattern::kAllToAll;
  return std::nullopt;
}

std::vector<PairBytes> PatternTraffic(TrafficPattern pattern, int32_t ends, Bytes bytes) {
  std::vector<PairBytes> pairs;
  if (ends <= 1) return pairs;
  switch (pattern) {
    case TrafficPattern::kRing:
      for (int32_t i = 0; i < ends; ++i) pairs.push_back({i, (i + 1) % ends, Share(bytes, 2 * (ends - 1), ends)});
      return pairs;
    case TrafficPattern::kTree: return TreeTraffic(ends, bytes);
    case TrafficPattern::kAllToAll:
      for (int32_t i = 0; i < ends; ++i) {
        for (int32_t j = 0; j < ends; ++j) {
          if (i != j) pairs.push_back({i, j, bytes / ends});
        }
      }
      return pairs;
  }
  return pairs;
}

std::vector<ScenarioFlow> FlowsBetween(std::span<const TrafficEnd> ends, std::span<const PairBytes> pairs) {
  std::vector<ScenarioFlow> flows;
  for (const PairBytes& pair : pairs) {
    const TrafficEnd& from = ends[static_cast<size_t>(pair.from)];
    const TrafficEnd& to = ends[static_cast<size_t>(pair.to)];
    const size_t lanes = std::max(from.size(), to.size());
    const auto count = static_cast<int64_t>(lanes);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const int64_t extra = static_cast<int64_t>(lane) < pair.bytes.count() % count ? 1 : 0;
      const Bytes part = pair.bytes / count + Bytes(extra);
      if (part.count() > 0) flows.push_back({from[lane % from.size()], to[lane % to.size()], part});
    }
  }
  return flows;
}

std::vector<ScenarioFlow> FlowsOfBursts(std::span<const TrafficEnd> ends, std::span<const std::vector<PairBytes>> bursts) {
  std::vector<ScenarioFlow> flows;
  std::map<std::pair<NodeId, NodeId>, size_t> known;
  for (size_t b = 0; b < bursts.size(); ++b) {
    for (const ScenarioFlow& part : FlowsBetween(ends, bursts[b])) {
      const auto [at, added] = known.try_emplace({part.from, part.to}, flows.size());
      if (added) flows.push_back({part.from, part.to, Bytes(0), std::vector<Bytes>(bursts.size(), Bytes(0))});
      flows[at->second].bytes += part.bytes;
      flows[at->second].per_burst[b] += part.bytes;
    }
  }
  return flows;
}

}  // namespace weft::planner::jobs

// What a job's communication puts between its hosts in one iteration, for jobs of which no more is known than a pattern
// and a size; and how bytes between two hosts become flows between the GPUs in them.
//
//   const std::vector<PairBytes> pairs = PatternTraffic(TrafficPattern::kRing, 4, 1_GiB);
//   job.flows = FlowsBetween(ends, pairs);
//
// Leaves out: traffic inside a host, which no fabric sees.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/units.h"
#include "planner/jobs/simulate/scenario.h"

namespace weft::planner::inline jobs {

/// One host of a job as the topology has it: the GPUs that the job uses, or the host itself where it is plain.
using TrafficEnd = std::vector<NodeId>;

/// Bytes of one iteration from one end to another, by their places among the job's ends.
struct PairBytes {
  int32_t from = 0, to = 0;
  Bytes bytes;

  friend bool operator==(const PairBytes&, const PairBytes&) = default;
};

enum class TrafficPattern : uint8_t {
  kRing,      ///< all-reduce: 2(n-1)/n of the buffer from each end to the next
  kTree,      ///< all-reduce over a double binary tree: half of the buffer up and down each edge of both trees
  kAllToAll,  ///< one n-th of the buffer from each end to each other one
};

/// "ring", "tree", "all-to-all"; nullopt for another word.
std::optional<TrafficPattern> ParseTrafficPattern(std::string_view text);

/// `bytes` is the buffer on each of `ends` hosts. By rising (from, to); empty for one end. Requires: ends ≥ 1, bytes ≥
/// 0. Source: ring, Patarasuk and Yuan 2009; trees, planner/collectives/tree.h. Complexity: O(result).
std::vector<PairBytes> PatternTraffic(TrafficPattern pattern, int32_t ends, Bytes bytes);

/// GPU i of one end sends to GPU i of the other, each an equal part of the pair's bytes, as a rail-wise collective
/// does; ends of different size take turns. Requires: pairs between ends that exist and are not empty.
std::vector<ScenarioFlow> FlowsBetween(std::span<const TrafficEnd> ends, std::span<const PairBytes> pairs);

/// Of several bursts: what goes from one end to another in any of them is one flow.
std::vector<ScenarioFlow> FlowsOfBursts(std::span<const TrafficEnd> ends, std::span<const std::vector<PairBytes>> bursts);

}  // namespace weft::planner::jobs

// Flows between the same places may swap bytes between their ways as they like, as long as every way carries the same in sum.
// With all of them busy that changes nothing, so an answer has few splits; but a flow that has most of its bytes on a slow way is
// no faster while the others compute. Two jobs around a spine that gives 0.2 C and one that gives C: split 1:2 and 0:1 both have
// 0.6 C when they meet, and the first no more when they do not; split 1:5 each, both have all of C then. Internal to planner/flows.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/flows/instance.h"

namespace weft::planner::inline flows {

/// `shares`, with the busy flows of every group of few jobs (see below) split alike, in parts of `units`. What each way carries stays
/// but for the rounding. Where a job has several flows between the same places this is often the only fair answer: lanes share
/// links fairly, so that a flow that alone is split has more than its neighbours.
Shares Evened(const Instance& instance, const Shares& shares, int32_t units);

/// `shares`, with the flows of a group (of few jobs, with the same usable paths but for the links that all of these have in
/// common) split alike where the one with least, while all other jobs pause, then has more by `gain`. Meanwhile the fullest link,
/// the group's flow with least and its flows in sum may be worse by a tenth of what is gained, 2 to 7 %, and other flows by 2 %. A
/// group of which no flow `moves` stays, and so do flows with less than a twentieth of its largest demand. `budget`: rates that may
/// be computed. Deterministic. Complexity: O(flows · paths · log) where no job is held alone.
Shares SplitAlike(const Instance& instance, Shares shares, const std::vector<bool>& moves, double gain, int64_t budget);

}  // namespace weft::planner::flows

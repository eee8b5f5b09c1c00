// What messages between the stages of a pipeline cross, from the order of the ranks alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "planner/collectives/collective_cost.h"
#include "planner/parallelism/strategy.h"

namespace weft::planner::inline parallelism {

/// Ranks of a stage that lie side by side: each sends to the one that is so many further.
int64_t HopStride(const Strategy& s);

/// What a message leaves from a stage to the next, the last one's to the first: UnitsLeft() of whichever pipeline leaves most. Requires:
/// 0 ≤ stage < pp. Complexity: O(tiers), and O(dp) for a size of node that few pipelines fill.
size_t HopLeaves(const GroupNetwork& network, const Strategy& s, int64_t stage);

/// At most HopLeaves() of any stage: a pair of blocks that fits into a unit may lie in one.
size_t LeastHopLeaves(const GroupNetwork& network, const Strategy& s);

}  // namespace weft::planner::inline parallelism

// Schedules from packed spanning trees: an all-gather goes down every rank's trees, a reduce-scatter up the same trees (the
// cables are alike in both directions), an all-reduce up and then down.
#pragma once

#include <cstdint>

#include "common/result.h"
#include "planner/collectives/schedule.h"
#include "planner/collectives/tree_packing.h"

namespace weft::planner::inline collectives {

/// One chunk per root and unit of weight. Errors: kInvalidArgument for another collective; kResourceExhausted when that
/// makes more than 2^16 chunks.
[[nodiscard]] Result<Schedule> PackedSchedule(Collective collective, const TreePacking& packing);

/// Time that no schedule of the collective can be below on the packed network, and that PackedSchedule reaches for large
/// data: S / N / x for all-gather and reduce-scatter, twice that for all-reduce. `unit` is the rate that capacity 1 stands for.
/// Requires: an all-reduce, all-gather or reduce-scatter.
Seconds PackedTime(Collective collective, const TreePacking& packing, Bytes bytes, BitsPerSecond unit);

/// Groups of `group` consecutive ranks, each behind a switch of 4 times the capacity of its ranks' ways to the others.
PackingGraph GroupedGraph(int32_t ranks, int32_t group);
/// PackedSchedule on GroupedGraph, for trying it out. Errors: as PackTrees and PackedSchedule.
[[nodiscard]] Result<Schedule> PackedGroupsSchedule(Collective collective, int32_t ranks, int32_t group);

}  // namespace weft::planner::collectives

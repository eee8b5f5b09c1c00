// Plays a schedule step by step on links that have a latency and a rate, to see how long it takes: what closed forms are
// held against in tests. Ranks lie in groups; a rank has one port inside its group and one to
// the other groups, each full duplex. A transfer of m bytes holds the sender's and the receiver's port for m / rate and has
// arrived one latency later; ports serve transfers in the order in which they became possible. Sums and copies take no
// time.
//
// Leaves out: contention between ports and any cost per message but latency.
#pragma once

#include <cstdint>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/communicator_shape.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// The end of the last step, when the full buffer has `bytes` and every chunk is cut into `slices` equal slices.
/// Requires: slices ≥ 1, rates > 0. Errors: kInvalidArgument for a schedule of another number of ranks or one that cannot
/// run. Complexity: O(transfers · slices · log), times the transfers waiting for ports.
[[nodiscard]] Result<Seconds> ReplayTime(const Schedule& schedule, const CommunicatorShape& shape, Bytes bytes,
                                         int32_t slices = 1);

}  // namespace weft::planner::collectives

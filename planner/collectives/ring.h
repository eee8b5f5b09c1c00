// Ring algorithms: schedules to execute and closed forms to plan with. Rank r sends to r+1. Steps and bytes on the wire
// per rank, S the full buffer, n ranks:
//
//   all-reduce 2(n-1) steps, 2(n-1)/n S    all-gather, reduce-scatter n-1 steps, (n-1)/n S
//   shift      1 step, S                 (to the next rank)
//   reduce     as a broadcast, the other way round
//   broadcast  n-1 hops, S (pipelined)     all-to-all n-1 steps, (n-1)/n S (pairwise, direct)
//
// Source: Patarasuk and Yuan 2009; Thakur, Rabenseifner and Gropp 2005.
#pragma once

#include "common/units.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// The ring schedule of `collective` over `ranks` ranks; all-to-all is pairwise, send/recv is rank 0 to rank 1. Input and
/// output may be the same memory for all-reduce and broadcast, not for all-to-all. One rank only copies.
/// `root` is the broadcast's. Errors: kInvalidArgument when ranks < 1, root out of range, or ranks != 2 for send/recv.
[[nodiscard]] Result<Schedule> RingSchedule(Collective collective, int32_t ranks, RankId root = RankId(0));

/// Every rank's input goes to the rank behind it, all at once: what travels round a ring, step by step. Requires: ranks ≥ 2.
Schedule RingShift(int32_t ranks);

/// Two chunks: of every rank's input the first goes to the rank before it, into its second, the second to the one behind it, into
/// its first. The ranks are a line, not a ring: beyond its ends nothing is sent, and that chunk of the output is left as it is.
/// Requires: ranks ≥ 2.
Schedule NeighbourExchange(int32_t ranks);

/// The sum of all inputs comes to the output of `root`, the only one: hop by hop towards it. Sizes are an all-reduce's.
/// Requires: ranks ≥ 2, 0 ≤ root < ranks.
Schedule RingReduce(int32_t ranks, RankId root);

/// Factor from algbw to busbw, as nccl-tests count it: 2(n-1)/n, (n-1)/n or 1.
double BusBandwidthFactor(Collective collective, int32_t ranks);

}  // namespace weft::planner::collectives

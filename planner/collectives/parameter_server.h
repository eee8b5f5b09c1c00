// Reductions that are not done between GPUs: on servers (ranks of the job, or spare host CPUs), and in the switches.
//
// Source: Jiang et al., BytePS, OSDI 2020, section 4 (shares of servers); Graham et al., SHARP, 2016, and Sapio et al.,
// SwitchML, NSDI 2021 (in the network).
#pragma once

#include <cstdint>

#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/schedule.h"

namespace weft::planner::inline collectives {

/// All-reduce by way of servers: ranks 0 to servers - 1 each sum an equal part and send it back to all. With as many servers
/// as ranks it is a direct reduce-scatter and all-gather. Errors: kInvalidArgument for another collective, or servers not
/// in 1 to ranks.
[[nodiscard]] Result<Schedule> ParameterServerSchedule(Collective collective, int32_t ranks, int32_t servers);

/// Time of that schedule over equal links: 2 (a + (n-1)/servers S b), the busiest server receives and sends a part for each
/// of the others; plus the waits for a part's sum where latency rules, because a server holds max(3, servers) parts at a
/// time. Requires: 1 ≤ servers ≤ ranks.
Seconds ParameterServerTime(int32_t ranks, int32_t servers, Bytes bytes, BitsPerSecond rate, Seconds latency);

/// What each server sums when n GPU machines and k spare CPU machines all serve, as shares of the whole: the shares that
/// make every NIC equally busy.
struct ServerShares {
  double gpu_machine = 0;
  double cpu_machine = 0;
};
/// Requires: machines ≥ 1, 0 ≤ spare ≤ machines. Source: BytePS, section 4.1, equations 1 and 2.
ServerShares BestServerShares(int32_t machines, int32_t spare);

/// Time of an all-reduce of `bytes` per machine with those shares: 2 n (n-1) / (n² + k n - 2 k) S b + 2 a. k = 0 is the
/// ring's wire time, k = n the wire time of the data once.
Seconds SpareServerTime(int32_t machines, int32_t spare, Bytes bytes, BitsPerSecond rate, Seconds latency);

/// Switches that sum: how many trees a job may have at a time, and how deep a tree is.
struct SwitchReduction {
  int32_t trees = 0;           ///< quota; 0: none, the collective must go another way
  int32_t levels = 1;          ///< switches between a host and the root
  BitsPerSecond tree_rate;     ///< what one tree can sum
  Seconds hop_latency{0};
};

}  // namespace weft::planner::collectives

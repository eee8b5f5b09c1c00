// The order of one job's own transfers: what is needed first goes first. A transfer's slack is how much later than alone it
// may finish before compute waits for it, as the tasks layer knows it; a pipeline's transfers have rising times, those of
// one gradient bucket the same.
//
// On the one path that they share, earliest time first, interrupting, makes the largest delay least, also where transfers
// become ready at different times.
//
// Source: finish times as the interface between tasks and flows are EchelonFlow (HotNets'22); optimality of the order is
// Jackson's rule with preemption (Horn 1974).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"

namespace weft::planner {

struct TransferNeed {
  uint64_t key = 0;       ///< the caller's name for it; ties are broken by it
  Bytes bytes;
  Seconds ready{0};       ///< not before
  Seconds slack{0};       ///< ≥ 0, beyond ready + bytes / rate
};

struct TransferTurn {
  uint64_t key = 0;
  int32_t rank = 0;       ///< 0 first; equal needs have different ranks
  int32_t weight = 1;     ///< 1 … 64, for fabrics that share instead: in proportion to the rate that just meets the need
  Seconds needed{0};      ///< ready + bytes / rate + slack
  Seconds finish{0};      ///< in this order at `rate`
  Seconds delay{0};       ///< max(0, finish - needed)
};

/// In the order of `needs`. Requires: rate > 0, bytes ≥ 0, ready and slack ≥ 0. Complexity: O(n² log n) at most.
std::vector<TransferTurn> OrderTransfers(BitsPerSecond rate, std::span<const TransferNeed> needs);

/// Finish times when the transfer of lowest rank that is ready always has the whole rate.
std::vector<Seconds> ServeByRank(BitsPerSecond rate, std::span<const TransferNeed> needs, std::span<const int32_t> rank);

}  // namespace weft::planner

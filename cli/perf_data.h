// The numbers that `weft perf` sends, and what must come out: written down from the meaning of each collective, without
// a look at any schedule.
#pragma once

#include <cstdint>
#include <span>

#include "planner/collectives/schedule.h"

namespace weft::cli {

/// One rank's view of one run.
struct PerfRun {
  planner::Collective collective;
  int ranks;
  int rank;
  int64_t count;       ///< elements of the full buffer
  uint32_t iteration;  ///< of all runs, warm-up too
  int from = 0;        ///< sendrecv: whose input comes; `rank` itself when nothing does
};

/// Elements of this rank's input and output.
int64_t InputElements(const PerfRun& run);
int64_t OutputElements(const PerfRun& run);

/// Values that depend on rank, position and iteration: whole numbers below 2^16, so that sums of up to 256 ranks are
/// exact in any order.
void FillInput(const PerfRun& run, std::span<float> input);

/// How many elements of `output` are not what they must be. Every one is compared.
int64_t CountWrong(const PerfRun& run, std::span<const float> output);

}  // namespace weft::cli

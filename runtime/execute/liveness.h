// Who writes each value of a list, and after which instruction it may go. No torch here.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/planner.h"

namespace weft::runtime {

struct Liveness {
  std::vector<int32_t> writer;                   ///< instruction, by value; -1: none
  std::vector<std::vector<int32_t>> free_after;  ///< values, by instruction: those that nobody reads later
  int32_t loss = -1;                             ///< the value that has the step's loss in the end, which stays
};

/// Requires: a list that CheckProgram() accepts, with a kLossSum.
Liveness LivenessOf(const planner::RankClass& list);

}  // namespace weft::runtime

// The core of one peak's knapsack: the few choices that an answer can take beside those of the linear relaxation.
// Internal to choice_knapsack.cc.
#pragma once

#include "planner/parallelism/choice_knapsack.h"

namespace weft::planner::inline parallelism {

/// Improves `answer` by all answers of one peak that beat it by more than the tolerance, if `limits.enumerated` sets of choices
/// are enough. True: nothing else of this peak does. Complexity: O(limits.enumerated + choices · log choices).
/// Source: reduced costs at the relaxation's price of memory, derived in knapsack_core.cc.
bool SolveCore(const KnapsackCase& one, int64_t budget, const KnapsackLimits& limits, KnapsackAnswer& answer);

}  // namespace weft::planner::parallelism

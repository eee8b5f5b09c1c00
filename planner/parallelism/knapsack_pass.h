// One peak's knapsack by dynamic programming over undominated (memory, time) states. Internal to choice_knapsack.cc.
#pragma once

#include "planner/parallelism/choice_knapsack.h"

namespace weft::planner::inline parallelism {

/// Improves `answer` by the best answer of one peak, if that beats it by more than the tolerance. `bound`: the peak's relaxation.
/// States count in `answer`; past the limit it is no longer complete.
/// Complexity: O(items · states · choices); the states left after cutting are few hundred in practice.
/// Source: Pisinger, EJOR 83 (1995), section 5.
void SolveByPasses(const KnapsackCase& one, int64_t budget, double bound, const KnapsackLimits& limits, KnapsackAnswer& answer);

}  // namespace weft::planner::parallelism

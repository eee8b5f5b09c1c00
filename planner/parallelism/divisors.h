// Degrees and micro-batches divide something.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::planner::inline parallelism {

/// All divisors of n, ascending. Requires: n ≥ 1. Complexity: O(√n).
std::vector<int64_t> Divisors(int64_t n);

}  // namespace weft::planner::parallelism

// Branch and bound over a list of candidates that knows nothing of what they are: in order of a lower bound that never
// exceeds a candidate's value, evaluate until no bound left is below the worst answer kept.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace weft::planner {

struct Ranked {
  size_t candidate = 0;
  double value = 0;
};

struct BestFirstResult {
  std::vector<Ranked> best;  ///< ascending value, ties by candidate; at most `keep`
  int64_t evaluated = 0;
  int64_t pruned = 0;        ///< not evaluated, because their bound proves that they are not among the best
  bool complete = true;      ///< false: `budget` ended the search
};

/// Finds the `keep` candidates with the least `evaluate(i)`. Requires: evaluate(i) ≥ bounds[i], up to rounding (1e-12,
/// relative). The answer does not depend on the order of equal bounds. Complexity: O(n log n) and the evaluations.
BestFirstResult BestFirst(std::span<const double> bounds, size_t keep, int64_t budget,
                          const std::function<double(size_t)>& evaluate);

}  // namespace weft::planner

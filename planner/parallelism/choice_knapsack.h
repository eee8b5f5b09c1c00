// The exact inner problem of per-operator decisions: every item takes one of its group's choices, each with a time and
// an amount of memory; memory adds up, a peak (the largest of the choices taken) comes on top, the sum stays within a
// budget, and the total time is least. Identical items are one group with a count.
//
// Method: for every possible peak a multiple-choice knapsack, in order of its linear relaxation; each by dynamic
// programming over undominated (memory, time) states, cut by the relaxation of what is left against the best answer
// known, which a narrow first pass finds.
//
//   const KnapsackAnswer answer = SolveChoiceKnapsack(groups, budget, {});
//   if (answer.feasible) use(answer.taken[group][choice]);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::planner::inline parallelism {

struct Choice {
  double time = 0;        ///< seconds
  int64_t memory = 0;     ///< bytes, kept all the time
  int64_t peak = 0;       ///< bytes, held only while the item runs
};

struct ChoiceGroup {
  std::vector<Choice> choices;
  int64_t count = 1;      ///< identical items, each takes one choice
};

struct KnapsackLimits {
  double tolerance = 0;             ///< relative; an answer this close to the bound counts as the optimum
  int64_t states = 20'000'000;      ///< looked at; past it `complete` is false
  double upper = 1e300;             ///< only answers below this time are of interest
};

struct KnapsackAnswer {
  bool feasible = false;            ///< an answer below `upper` was found
  bool complete = true;             ///< false: the state budget ended the search, `lower_bound` still holds
  double time = 0;
  int64_t memory = 0;               ///< sum and peak
  double lower_bound = 0;           ///< no answer is below; +infinity if nothing fits
  int64_t states = 0;
  std::vector<std::vector<int64_t>> taken;  ///< [group][choice]: how many items take it
};

/// The least time within `budget` bytes. Ties go to the smaller peak, then to what the fixed order of states finds
/// first. Requires: times, memories and peaks ≥ 0, counts ≥ 0, no group without choices, sums below 2^62.
/// Complexity: O(items · states · choices) per peak; the states left after cutting are few hundred in practice.
/// Source: dynamic programming with bounds for multiple-choice knapsacks, Pisinger, EJOR 83 (1995), section 5.
KnapsackAnswer SolveChoiceKnapsack(std::span<const ChoiceGroup> groups, int64_t budget, const KnapsackLimits& limits);

/// The linear relaxation of the same problem: a bound from below, +infinity if nothing fits.
double RelaxedKnapsack(std::span<const ChoiceGroup> groups, int64_t budget);

}  // namespace weft::planner::parallelism

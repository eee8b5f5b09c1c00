// The exact inner problem of per-operator decisions: every item takes one of its group's choices, each with a time and
// an amount of memory; memory adds up, a peak (the largest of the choices taken) comes on top, the sum stays within a
// budget, and the total time is least. Identical items are one group with a count.
//
// Method: for every possible peak a multiple-choice knapsack, in order of its linear relaxation. The relaxation prices
// memory; at that price most choices lose by themselves more than the best answer known is above the relaxation, and are
// out. What is left is enumerated depth first (knapsack_core.h); where that gets long, dynamic programming over
// undominated (memory, time) states takes over (knapsack_pass.h), for each half of the items, cut by the relaxation of all
// others.
//
// Made to be asked with many budgets: what does not depend on the budget is prepared once, and the hulls only when
// something is to be decided.
//
//   ChoiceKnapsack knapsack;
//   knapsack.Prepare(groups);
//   const KnapsackAnswer answer = knapsack.Solve(budget, {});
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
  std::span<const Choice> choices;
  int64_t count = 1;      ///< identical items, each takes one choice
};

struct KnapsackLimits {
  double tolerance = 0;             ///< relative; an answer this close to the bound counts as the optimum
  int64_t states = 20'000'000;      ///< looked at; past it `complete` is false
  int64_t enumerated = 1000;        ///< of them, sets of choices per peak before dynamic programming takes over
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

/// One group's choice under one peak.
struct KnapsackOption {
  double time;
  int64_t memory;
  uint32_t choice;    ///< place in the group's list
};

/// A step from one corner of a group's lower hull to the next: memory that buys time.
struct KnapsackSegment {
  double rate;        ///< seconds per byte
  double memory, time;  ///< of one item
  uint32_t group;
  uint32_t from, to;  ///< options of the group
};

/// The knapsack of one peak.
struct KnapsackCase {
  int64_t peak = 0;
  bool possible = false;               ///< every group has an option; the fields below count only then
  std::vector<KnapsackOption> options; ///< all groups' undominated ones, each by ascending memory, descending time
  std::vector<uint32_t> begin;         ///< [groups + 1]
  std::vector<int64_t> counts;         ///< [group]
  std::vector<size_t> choices;         ///< [group]: that it has under any peak
  std::vector<KnapsackSegment> segments;  ///< steepest first
  std::vector<double> memory, time;    ///< [segments + 1]: bought with all items up to each corner of the relaxation
  int64_t least_memory = 0, unit = 0;  ///< all items' least; what differences are multiples of, 0: no differences
  double most_time = 0;                ///< all items at their least memory

  std::span<const KnapsackOption> Of(size_t group) const {
    return std::span(options).subspan(begin[group], begin[group + 1] - begin[group]);
  }
  /// What items may use of `budget`, without the peak and what cannot be filled.
  int64_t Room(int64_t budget) const {
    const int64_t room = budget - peak;
    return unit > 0 && room > least_memory ? room - (room - least_memory) % unit : room;
  }
  /// Least time within `room` bytes, items divisible; +infinity if impossible. `corner`: the last one before `room`.
  double Relaxed(int64_t room, size_t* corner = nullptr) const;
};

/// One thread's.
class ChoiceKnapsack {
 public:
  /// Takes new groups; the choices have to stay where they are. Requires: times, memories and peaks ≥ 0, counts ≥ 0, no
  /// group without choices, sums below 2^62. Complexity: O(peaks · choices).
  void Prepare(std::span<const ChoiceGroup> groups);

  /// The least time within `budget` bytes. Ties go to the smaller bound's peak, then to what the fixed order finds first:
  /// the same question has the same answer. Complexity: some hundred steps in practice; at worst O(items · states ·
  /// choices) per peak. Source: Lagrangian bounds, reduction of choices and dynamic programming for multiple-choice
  /// knapsacks, Pisinger, EJOR 83 (1995), sections 3 to 5.
  KnapsackAnswer Solve(int64_t budget, const KnapsackLimits& limits);

  /// The linear relaxation of the same problem: a bound from below, +infinity if nothing fits. Complexity: O(peaks · log choices).
  double Relaxed(int64_t budget) const;

  /// Whether any choices fit `budget`.
  bool Fits(int64_t budget) const { return budget >= least_; }

 private:
  void Fill(KnapsackCase& one, int64_t peak);

  std::vector<ChoiceGroup> groups_;
  std::vector<KnapsackOption> sorted_;  // all groups' choices, each by memory, then time
  std::vector<int64_t> peaks_;
  std::vector<KnapsackCase> cases_;     // [0, count_): one for each peak that an answer can have, ascending
  size_t count_ = 0;
  int64_t least_ = 0;                   // bytes that the leanest choices need, peak included
};

}  // namespace weft::planner::parallelism

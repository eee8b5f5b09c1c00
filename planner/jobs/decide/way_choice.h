// Which way every job that has just arrived is run: all of them together, by running the present state forward on quick plans.
//
//   for (const std::vector<size_t>& ways : ChooseWays(situation).ways) ... WithWays(situation, ways) ...
//
// A quick plan is balanced paths, and one class or classes by a simple rule; where profiles are predictions, it is run in a few worlds
// in which these are off. From several starts (every job as it is alone, every job as it sends least) one job after another takes the
// way that is best beside the others' until none gains; all combinations are tried where they are few.
// Leaves out: time shifts, and moves of single flows, which are planned for the ways that were chosen.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

inline constexpr size_t kMostWayChoices = 4;

struct WayChoice {
  /// Per job, the best few on quick plans, the best first; what every job runs as now or alone is among them, at the end.
  std::vector<std::vector<size_t>> ways;
  int64_t evaluations = 0, work = 0; ///< plans simulated, and what that took
  bool complete = true;              ///< the budget sufficed
};

/// A function: same input, same answer. Spends at most a quarter of the budget's evaluations and work.
WayChoice ChooseWays(const Situation& situation, const DecideBudget& budget);

/// A line for each job that has a choice: what it runs as, and what is best alone.
std::vector<std::string> ExplainWays(const Situation& situation, const std::vector<size_t>& ways);

}  // namespace weft::planner::jobs

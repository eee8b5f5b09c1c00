// Which way every job that has just arrived is run: all of them together, by running the present state forward on quick plans.
//
//   const WayChoice choice = ChooseWays(situation);
//   const Decision rest = ... WithWays(situation, choice.ways) ...
//
// A quick plan is balanced paths, and one class or classes by intensity. From several starts (every job as it is alone, every job as
// it sends least) one job after another takes the way that is best beside the others' until none gains; all combinations are
// tried where they are few.
// Leaves out: time shifts, and moves of single flows, which are planned for the ways that were chosen.
// Internal to planner/jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/jobs/simulate/situation.h"

namespace weft::planner::inline jobs {

struct WayChoice {
  std::vector<size_t> ways;          ///< per job
  int64_t evaluations = 0;           ///< plans simulated
  bool complete = true;              ///< the budget sufficed
  std::vector<std::string> why;      ///< of every job that does not run as it would alone, and what forcing it back costs
};

/// A function: same input, same answer. Spends at most a quarter of the situation's evaluations and work.
WayChoice ChooseWays(const Situation& situation);

}  // namespace weft::planner::jobs

// Time windows that senders of running jobs can keep: shifts between jobs of steady periods, so that their bursts do not fall on each
// other, with a pause between bursts and a common cycle of all periods.
// A sender tells where its bursts begin by the pause before them, and holds back one that comes before its window: see
// netplugin/gate.h. So windows are given only where bursts fit beside each other with pauses, where a job pauses for most of its
// period, and where no job without a steady period is in the way.
// Internal to planner/jobs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/units.h"
#include "planner/flows/periodic.h"
#include "planner/flows/time_shift.h"
#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

/// Pause between the bursts of two jobs, of the period, that is always left.
inline constexpr double kLeastGuard = 0.04;
/// How much a window may delay an iteration by that is in force already, of the period: models of jobs that have windows move a little.
inline constexpr double kKeptStretch = 0.1;

struct WindowPlan {
  std::vector<Gate> gates;              ///< per job; empty: no windows
  double pause = kLeastGuard;           ///< between bursts, of a period
  std::vector<ShiftedLink> links;       ///< where bursts would have fallen on each other
  std::vector<std::string> rejected;    ///< why there are none, and what was left out
  bool complete = true;                 ///< no search was cut short
};

/// Windows for the jobs of steady periods. Requires: situation.measured; jobs as in the situation, on their paths.
WindowPlan PlanWindows(const Situation& situation, const std::vector<PeriodicJob>& jobs);

/// Gates by which jobs begin `shift` after a common start, their periods stretched to a common cycle that leaves room for `pause`;
/// jobs without a shift are open. Nothing if a period would grow by more than `most_stretch` of it.
std::optional<std::vector<Gate>> CommonCycle(std::span<const BitsPerSecond> capacity, const std::vector<PeriodicJob>& jobs,
                                             const std::vector<std::optional<Seconds>>& shift, double most_stretch, double pause);

}  // namespace weft::planner::jobs

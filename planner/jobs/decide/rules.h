// What is decided where so many jobs meet that hardly any plan can be simulated: paths by load, and classes by corrected GPU intensity,
// which replace those in force where they lose clearly less by contention.
// Internal to planner/jobs.
#pragma once

#include <string>
#include <vector>

#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

/// Of the usual time, that plans are simulated for at least where they take long.
inline constexpr double kShortestHorizon = 0.1;
/// Nothing is simulated unless so many plans can be, each for that time.
inline constexpr double kFewPlans = 60;

/// Whether these jobs can be simulated for this budget. Complexity: linear in loads.
bool CanSimulate(const Situation& situation, const std::vector<PeriodicJob>& jobs, const DecideBudget& budget);

/// Without a simulation, on the given paths, which are called `name`; default_use is Estimate()'s. Complexity: jobs² · classes, and loads.
Decision DecideByRules(const Situation& situation, const std::string& name, const JobPaths& paths);

}  // namespace weft::planner::jobs

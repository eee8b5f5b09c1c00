// What Weft's policy puts its plans together from.
// Internal to planner/jobs.
#pragma once

#include <vector>

#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

/// Balanced by mean load: path_choice.h's greedy choice and local search, whole flows.
JobPaths BalancedPaths(const Situation& situation);

/// Balanced by what holds a job while it sends: a flow's cost on a link is the time that its own job's bytes take
/// there, over what the others leave in the mean. From `start`, flow by flow, a few rounds. Complexity: O(rounds ·
/// paths · hops).
JobPaths SelfAwarePaths(const Situation& situation, JobPaths start);

/// Every flow divided between kMostLanes of its ways (AddSplits()), where they are several; else its first.
JobPaths DividedPaths(const Situation& situation);

/// The paths in use, those of `fallback` for jobs that have just arrived.
JobPaths PresentPaths(const Situation& situation, const JobPaths& fallback);

/// How InterleavingGates() goes about it.
struct InterleaveOptions {
  double stretch = 1;      ///< of the common periods: room for what does not fit
  bool loops = false;      ///< links that close loops of the affinity graph count as well
  bool alike = false;      ///< only jobs of almost one period are shifted against each other, all others are left open
};

/// Gates for jobs that can collide: periods of a group stretched to fill one circle (so that what interleaves goes on
/// interleaving), at least so long that its busiest link could carry all of them; shifts by PlanTimeShifts()
/// over the links that are overloaded most. Open gates for all others, and where a group is too large to be shifted.
std::vector<Gate> InterleavingGates(const Situation& situation, const std::vector<PeriodicJob>& jobs,
                                    const InterleaveOptions& options = {});

/// The same order in the last classes, so that nothing is raised above background traffic without need; jobs that meet nobody get the
/// last, which is the default. Complexity: loads · log jobs.
std::vector<int32_t> LowestClasses(const Situation& situation, const std::vector<PeriodicJob>& jobs, std::vector<int32_t> classes);

}  // namespace weft::planner::jobs

// Whether a job that runs had better be restarted in another way: the fabric, the other jobs or what is known of them may have changed
// since it began. Nothing is restarted here.
//
// What is in force is run forward, and beside it every other way of every job that has some, while all others go on as they do; for the
// best way of a job all is then planned as after its restart. A restart loses what the job would have done meanwhile; it is
// advised where the jobs together make that up before the scenario ends, and gain enough to be no error of the model.
// Internal to planner/jobs.
#pragma once

#include <vector>

#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

inline constexpr int kMostAdviceTrials = 400;  ///< ways that are tried, of all jobs together
inline constexpr size_t kMostAdvised = 4;       ///< jobs for which all is planned as after a restart

/// For the jobs that gain most, the best first; none where so many jobs meet that nothing is simulated. `in_force`: for the situation's own
/// ways. Complexity: a simulation of 100 iterations per way
/// of every job, kMostAdviceTrials at most, and kMostAdvised decisions of the whole budget, which come on top of it.
std::vector<RestartAdvice> AdviseRestarts(const Situation& situation, const Decision& in_force, Seconds restart,
                                          const DecideBudget& budget);

}  // namespace weft::planner::jobs

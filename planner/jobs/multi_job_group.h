// A group of measured jobs that could meet on some link, as the state that DecideJobs() takes.
// Internal to planner/jobs.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/flows/periodic.h"
#include "planner/jobs/decide/situation.h"
#include "planner/jobs/multi_job_plan.h"

namespace weft::planner::inline jobs {

/// Jobs that can be simulated, in groups that could meet on some candidate path; each ascending, in order of their first job.
/// A job whose iteration is not a thousandth of the slowest of its group stands alone: it would cost a million events and
/// says nothing about the others.
std::vector<std::vector<size_t>> MultiJobGroups(const MultiJobProblem& problem);

/// A group of jobs as DecideJobs() takes it, and what its answer means for them.
struct MultiJobGroup {
  std::vector<size_t> members;          ///< numbers in the problem, ascending
  Situation situation;
  std::vector<PeriodicJob> now;         ///< as they go
  /// Per member and flow: the number in MultiJobFlow::paths of each whole path of the situation's.
  std::vector<std::vector<std::vector<size_t>>> numbers;

  /// MultiJobJobPlan::shares of a member on paths of the situation. Requires: paths that may be chosen.
  std::vector<std::vector<double>> SharesOn(const MultiJobProblem& problem, size_t member, const std::vector<size_t>& paths) const;
};

/// The group as it runs: bytes over efficiency, so that links count with their full rates, less the background; classes and windows
/// that are in force, the former the lowest that keep the order. All begin at once. Flows have the paths whose links are all alive,
/// where there are any; then those that divide the bytes; and last how they go now, if that is none of these and something was
/// decided for the job, or paths may not be changed. Jobs for which nobody decided anything are as new. Requires: `members` of one group.
MultiJobGroup GroupOf(const MultiJobProblem& problem, std::vector<size_t> members);

}  // namespace weft::planner::jobs

// A group of measured jobs that could meet on some link, as the state that DecideJobs() takes.
// Internal to planner/jobs.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/jobs/decide/situation.h"
#include "planner/jobs/joint_plan.h"

namespace weft::planner::inline jobs {

/// Jobs that can be simulated, in groups that could meet on some candidate path; each ascending, in order of their first job.
/// A job whose iteration is not a thousandth of the slowest of its group stands alone: it would cost a million events and
/// says nothing about the others.
std::vector<std::vector<size_t>> JointGroups(const JointProblem& problem);

/// The group as it runs: bytes over efficiency, so that links count with their full rates; the last path of every flow is how it
/// goes now, which may be several ways, and the others are its single ways; classes and windows that are in force, the former
/// the lowest that keep the order. All begin at once. Requires: `members` of one group.
Situation SituationOf(const JointProblem& problem, const std::vector<size_t>& members);

}  // namespace weft::planner::jobs

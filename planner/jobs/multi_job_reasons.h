// The sentences of a joint plan: why each job has its class and its shift, whom it meets, what lost. Internal to planner.
#pragma once

#include <string>
#include <vector>

#include "planner/flows/periodic.h"
#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/situation.h"
#include "planner/jobs/multi_job_bound.h"
#include "planner/jobs/multi_job_plan.h"

namespace weft::planner::inline jobs {

/// What planning one group found out.
struct GroupReport {
  Decision decision;
  TrialPlan trial;                       ///< of the decision, its classes as low as says the same
  Outcome outcome;                       ///< of that
  std::vector<double> intensity;         ///< corrected, per member
  double gpus = 0;
};

/// Fills `meets` of the group's jobs: who loads the same links, the heaviest first. `jobs`: on their paths, as `members`.
void FindContenders(const std::vector<size_t>& members, const std::vector<PeriodicJob>& jobs, MultiJobPlan* plan);

/// Fills `why` and `rejected` of the group's jobs.
void WriteReasons(const MultiJobProblem& problem, const std::vector<size_t>& members, const GroupReport& report, MultiJobPlan* plan);

/// Adds what the bound says to every modelled job.
void AddBoundReasons(const MultiJobProblem& problem, MultiJobPlan* plan);

/// "the bound is set by the cuts ...".
std::string TightText(const MultiJobBound& bound);

}  // namespace weft::planner::jobs

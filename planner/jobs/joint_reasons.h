// The sentences of a joint plan: why each job has its class and its shift, whom it meets, what lost. Internal to planner.
#pragma once

#include <string>
#include <vector>

#include "planner/flows/periodic.h"
#include "planner/flows/time_shift.h"
#include "planner/jobs/joint_bound.h"
#include "planner/jobs/joint_plan.h"
#include "planner/jobs/joint_world.h"

namespace weft::planner::inline jobs {

/// What planning one group found out.
struct GroupReport {
  double use = 0;                        ///< simulated GPU use of the answer,
  double use_present = 0;                ///< of what is in force,
  double use_default = 0;                ///< of plain ECMP
  double margin = 0;                     ///< least relative lead over plain ECMP under profile errors
  std::vector<double> intensity;         ///< corrected, per member
  std::vector<ShiftedLink> shift_links;  ///< on which the shift planner saw collisions
  std::vector<std::string> taken, rejected;
  SteadyState state;                     ///< of the answer
};

/// Fills `meets` of the group's jobs: who loads the same links, the heaviest first.
void FindContenders(const JointWorld& world, JointPlan* plan);

/// Fills `why` and `rejected` of the group's jobs.
void WriteReasons(const JointProblem& problem, const JointWorld& world, const GroupReport& report, JointPlan* plan);

/// Adds what the bound says to every modelled job.
void AddBoundReasons(const JointProblem& problem, JointPlan* plan);

/// "the bound is set by the cuts ...".
std::string TightText(const JointBound& bound);

}  // namespace weft::planner::jobs

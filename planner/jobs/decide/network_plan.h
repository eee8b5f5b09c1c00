// Layers 4 and 5 of a decision: paths × classes × time shifts of all jobs, each run in a way that is given. It puts candidate plans
// together from parts of its own, runs each forward in the simulator from the present state, improves the best by moves, and keeps it
// only if it stands up to wrong profiles. No published policy's answer is looked at.
//
// What is best: GPU use, mean and 99th-percentile slow-down, each relative to the best that balanced paths with simple rules for
// classes would reach from here; the score is ScoreOf() in search.h.
//
// Safety: finalists are run with all profiles off by up to 20 %, in several worlds. Where profiles are predictions, the mean over
// the worlds is what counts; where they were measured, a plan that serves worse there than balanced paths in one class gives
// way to the next best one. For jobs that really run, settle.h then holds the answer against what is in force and against plain ECMP.
// Where so many jobs meet that hardly any plan can be simulated, rules decide (rules.h).
// Internal to planner/jobs.
#pragma once

#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {

struct NetworkPlan {
  Decision decision;
  Outcome robust;    ///< what it comes to where profiles are off
};

/// A function: same input, same answer, unless it is stopped. Requires: at least one job.
NetworkPlan PlanNetwork(const Situation& situation, const DecideBudget& budget);

}  // namespace weft::planner::jobs

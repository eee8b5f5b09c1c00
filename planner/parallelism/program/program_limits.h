// What is asked of a strategy before it becomes a program, besides the rules of frameworks/program_rules.cc: in which slices operators
// can be cut, and how long the lists of all its stages can get. Cheap: both are asked for in a search.
#pragma once

#include <cstdint>

#include "planner/parallelism/operator_sharding.h"
#include "planner/parallelism/strategy.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// Whether attention and MLP can be computed in so many slices each, which tensor ranks share: heads, inner columns and the output's
/// columns divide, rows are not split, and no context rank has a part of every head. Requires: positive numbers.
bool RunsInSlices(const JobSpec& job, const Strategy& strategy, int64_t attention, int64_t mlp);
/// Whether the head can be: its words divide, and its table is not the embedding's as well.
bool RunsHeadInSlices(const JobSpec& job, const Strategy& strategy, int64_t slices);

/// What of the cuts that sharding per operator knows can be a program, and one that is no longer than MostInstructions() allows.
OperatorSplits ProgramSplits(const JobSpec& job, const Strategy& strategy);

/// No program of the degrees, micro-batch and modes of `strategy` has more instructions, whatever its schedule, recomputation and
/// exchange are; `slices`: most of an operator's. Requires: a legal strategy.
double MostInstructions(const JobSpec& job, const Strategy& strategy, int64_t slices);

}  // namespace weft::planner::parallelism

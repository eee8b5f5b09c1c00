// A job's model as operators, by the same counts and bytes as the cost model has: their FLOPs add up to a third of
// CostModel::model_flops(), their parameters to ParameterCount().
#pragma once

#include "planner/workload/job_spec.h"
#include "planner/workload/operator_list.h"

namespace weft::planner::inline parallelism {

/// Of `job.global_batch` sequences. Activations are those of a program that does operator by operator what the model's family does,
/// on one GPU. Requires: a job whose model and sizes CostModel::Make takes.
OperatorProfile OperatorsOf(const JobSpec& job);

}  // namespace weft::planner::parallelism

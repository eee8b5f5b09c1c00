// Planning for weft-train, which splits the batch and nothing else: dp, micro-batch, recomputation and bucket size,
// each priced by the simulated iteration of data_parallel.h. Takes a measured compute time where the job has one, and
// may leave GPUs idle where the batch does not divide by them.
#pragma once

#include "planner/planner.h"

namespace weft::planner {

/// As Plan(), for Framework::kWeftTrain. Requires: a job and a cluster that Plan() has checked.
[[nodiscard]] Result<PlanAnswer> PlanDataParallel(const JobSpec& job, const ClusterSpec& cluster,
                                                  const PlanOptions& options);

}  // namespace weft::planner

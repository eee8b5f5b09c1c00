// What no controller can beat (cut_bound.h), for the jobs as they run. Internal to planner.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "planner/jobs/multi_job_plan.h"

namespace weft::planner::inline jobs {

struct MultiJobBound {
  std::vector<Seconds> alone;     ///< per job: max(compute, release + worst bytes / capacity of a cut); 0: not modelled
  double gpu_use = 0;             ///< of all modelled jobs' GPUs
  std::vector<std::string> tight; ///< cuts with a price, the dearest first: "out of h1", "into all below leaf1"
};

/// `modelled[j]`: the job counts. Requires: flows begin and end at hosts or GPUs. Errors: those of SolveMaster;
/// kFailedPrecondition for bytes over a cut without capacity.
[[nodiscard]] Result<MultiJobBound> BoundMultiJob(const MultiJobProblem& problem, const std::vector<bool>& modelled);

}  // namespace weft::planner::jobs

// A plan's iteration as a Chrome trace: a process per pipeline stage (one class of equal ranks), with a track for kernels and
// bubbles, and one for each kind of communication that is waited for.
#pragma once

#include <string>

#include "common/result.h"
#include "planner/planner.h"

namespace weft::cli {

/// Of the best plan. Requires: job.gpus > 0. Errors: kInvalidArgument for a plan that has no one strategy (groups of machines), and
/// as CostModel::Timeline.
[[nodiscard]] Result<std::string> PlanTraceText(const planner::JobSpec& job, const planner::ClusterSpec& cluster,
                                                const planner::JobPlan& plan, std::optional<double> risk);

}  // namespace weft::cli

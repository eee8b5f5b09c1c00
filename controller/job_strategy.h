// What a submitted job's strategy is: its user's own, checked and priced; the search's; or none, and why. Pure.
#pragma once

#include "common/result.h"
#include "controller/job_planner.h"

namespace weft::controller {

/// Strategy, price, origin and reasons into `planned`; what stands in the way of a plan into its errors. Errors:
/// kInvalidArgument, with the reason, for a given strategy that is not legal for the job or not one that its framework runs.
[[nodiscard]] Status DecideStrategy(const v1::JobSpec& spec, const JobPlannerOptions& options, PlannedJob& planned);

/// Whether all ranks hold and exchange the same gradients: data parallelism, nothing split or sharded.
bool SumsWholeGradients(const v1::Strategy& strategy);

}  // namespace weft::controller

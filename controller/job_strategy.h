// What a submitted job's strategy is: its user's own, checked and priced; the search's; or none, and why. Pure.
#pragma once

#include "common/result.h"
#include "controller/job_planner.h"

namespace weft::controller {

/// Strategy, price, origin, launch by its framework and reasons into `planned`; what stands in the way of a plan into its errors. A program
/// of docs/frameworks.md, or `any`, is searched as `weft plan --framework` does; where links between the job's hosts carry much for
/// others, or give little, on what is left of them too, and what is faster there is taken. Everything else is planned as plain
/// data parallelism. Requires: planned.order, which may be put into the fabric's own order. Errors: kInvalidArgument, with the reason, for
/// a given strategy that is not legal for the job or not one that its framework runs. Threads: any; `stop` as PlanJob().
[[nodiscard]] Status DecideStrategy(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options,
                                    const std::stop_token& stop, PlannedJob& planned);

/// Whether all ranks hold and exchange the same gradients: data parallelism, nothing split or sharded.
bool SumsWholeGradients(const v1::Strategy& strategy);

}  // namespace weft::controller

// Hosts for a job that says how many GPUs it takes and not where: how many of the hosts that no job has, which, and whether it is
// in time. Pure. Weft is no batch system: a job that has to wait for hosts is refused, with when it can be submitted again if that
// is known, and nothing is kept for it.
#pragma once

#include <stop_token>

#include "common/result.h"
#include "controller/job_planner.h"

namespace weft::controller {

/// Whether the job leaves its hosts to the controller: it says `min_gpus` or `max_gpus`.
bool AsksForHosts(const v1::JobSpec& spec);

/// Numbers of hosts that one job is planned for, at most.
inline constexpr size_t kMostSizes = 6;

/// The job with hosts, strategy and reasons. At most kMostSizes numbers of hosts are planned, first as many as are free, each on the
/// hosts that lie closest together, and judged by when the job would end (planner/jobs/starts): a deadline is kept where one of them
/// keeps it. The chosen number is then tried on other sets of free hosts too. Without `iterations` a number is judged by its time per
/// iteration. Requires: AsksForHosts(), view.used. Errors: kInvalidArgument naming the field for numbers that contradict each other,
/// or beside `hosts` or `gpus`, or without a model; kFailedPrecondition where none of the numbers takes the job, or too few hosts are
/// free, with who has them and when they are free if that is known. `stop` as PlanJob(): numbers that were not planned until then are
/// left out, and the reasons say so.
[[nodiscard]] Result<PlannedJob> GiveHosts(const v1::JobSpec& spec, const PlacementView& view, const JobPlannerOptions& options,
                                           const std::stop_token& stop = {});

}  // namespace weft::controller

// What a job's plan says that its hosts send each other, before anything of it was measured.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "proto/job.pb.h"

namespace weft::controller {

/// Bytes of one iteration from one host to another.
using HostTraffic = std::map<std::pair<std::string, std::string>, double>;

/// By the plan's list of operations (planner/plan/model_profile.h): rings in order of
/// rank, all-to-alls direct. Empty where the plan has no such list, or names no host for each rank, or is of more than 65,536 ranks.
/// Complexity: O(ranks · operations), of all-to-alls times their ranks.
HostTraffic PlannedTraffic(const v1::JobPlan& plan);

}  // namespace weft::controller

// What a step program on this machine's calibrated computations is to the simulator.
#pragma once

#include "common/result.h"
#include "planner/parallelism/calibration.h"
#include "planner/planner.h"

namespace weft::real {

/// `plan` with the iteration of its program in place of the cost model's, and with what of it waits for each kind of communication:
/// what the iteration is shorter by where that kind takes no time. Errors: those of TimesOf() and TimelineOf().
[[nodiscard]] Result<planner::JobPlan> PricedByProgram(planner::JobPlan plan, const planner::StepProgram& program,
                                                       const planner::ClusterSpec& cluster, const planner::Calibration& calibration,
                                                       double stretch);

}  // namespace weft::real

// Constants of the cost model from what a machine was measured to take: those by which the model's own formulas come nearest.
#pragma once

#include <string>
#include <vector>

#include "planner/planner.h"
#include "runtime/machine/measure.h"

namespace weft::runtime {

struct FittedConstants {
  std::vector<planner::CalibrationConstant> constants;  ///< of gpu.cpu, and host.kernel
  std::vector<std::string> lines;                       ///< for a person: how near the formulas come
};

/// Requires: at least one time of each kind, all positive.
FittedConstants FitConstants(const MachineTimes& times);

}  // namespace weft::runtime

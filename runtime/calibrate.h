// weft-train --calibrate: what the computations of a program take on this machine, each by itself: the constants "operation.…" of a
// calibration, which predictions and stretched runs of that program read.
#pragma once

#include "common/result.h"
#include "planner/planner.h"
#include "runtime/program_run.h"

namespace weft::runtime {

/// Runs options.steps steps of one rank of each class in this process, with nothing sent, and writes the medians to
/// options.calibrate. What is measured, and assumed, goes to stderr. Errors: the executor's; kUnavailable for a file that cannot be
/// written.
[[nodiscard]] Status Calibrate(const TrainOptions& options, const ProgramInput& input, const planner::StepProgram& program);

}  // namespace weft::runtime

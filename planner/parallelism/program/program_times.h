// What the instructions of a step program take: computations as a calibration has measured them (`weft-train --calibrate`), communications
// by the one account of collectives. With TimelineOf() that is the predicted iteration of a program.
//
//   WEFT_ASSIGN_OR_RETURN(const InstructionTimes times, TimesOf(program, calibration, network));
#pragma once

#include <string>

#include "common/result.h"
#include "planner/collectives/collective_cost.h"
#include "planner/parallelism/calibration.h"
#include "planner/tasks/program_timeline.h"

namespace weft::planner::inline parallelism {

/// Under which a calibration has the time of a computation: what is computed, element type, shapes of the values that it reads (or
/// writes, where it reads none) and elements of its parameters; "forward.mlp.fp32.b2.128x64.p33024" behind "operation.". Equal names
/// take equally long. Empty for what takes no time to speak of.
std::string OperationName(const StepProgram& program, const RankClass& list, const Instruction& instruction);

/// Computations take `stretch` times as long as measured. Requires: a checked program, which outlives the result; a network with
/// single_ring. Errors: kNotFound naming a computation that the calibration lacks.
[[nodiscard]] Result<InstructionTimes> TimesOf(const StepProgram& program, const Calibration& calibration, const GroupNetwork& network,
                                               double stretch = 1);

}  // namespace weft::planner::parallelism

// Whether a program is one of the model, and what its parts compute with on a rank. Reaches torch.
#pragma once

#include "common/result.h"
#include "planner/planner.h"
#include "runtime/model/shape.h"

namespace weft::runtime {

/// Whether the program was made for the model, and has the rank. Errors: kInvalidArgument naming what differs.
[[nodiscard]] Status CheckModel(const planner::StepProgram& program, const planner::ModelSpec& model, int rank);

/// Requires: a program and a rank that CheckModel() accepts.
ModelShape ShapeOf(const planner::StepProgram& program, const planner::ModelSpec& model, int rank);

}  // namespace weft::runtime

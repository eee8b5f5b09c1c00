// Whether a program is one of the model, and what its parts compute with on a rank. Reaches torch.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "planner/planner.h"
#include "runtime/model/parts.h"
#include "runtime/model/shape.h"

namespace weft::runtime {

/// Whether the program was made for the model, and has the rank. Errors: kInvalidArgument naming what differs.
[[nodiscard]] Status CheckModel(const planner::StepProgram& program, const planner::ModelSpec& model, int rank);

/// Requires: a program and a rank that CheckModel() accepts.
ModelShape ShapeOf(const planner::StepProgram& program, const planner::ModelSpec& model, int rank);

/// Of a micro-batch of `shape`, [batch × (whole sequence + 1)] bytes: those of this rank's positions, positions first.
MicroBatchTokens TokensOf(const ModelShape& shape, const std::vector<uint8_t>& bytes);

}  // namespace weft::runtime

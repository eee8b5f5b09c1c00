// A training run that follows a plan: weft-train --plan. And the same model in one process of plain LibTorch in double precision,
// which such runs are compared with.
#pragma once

#include "common/result.h"
#include "runtime/train_job.h"

namespace weft::runtime {

/// Trains as the program at options.plan says; rank 0 reports to stdout. Blocks. Errors: as RunTraining(); kInvalidArgument for a
/// program that cannot be read, of another model, for another number of ranks, or another one than rank 0's.
[[nodiscard]] Status RunProgram(const TrainOptions& options);

/// Trains in one process with LibTorch's autograd and optimizer. Requires: options.world is 1. Errors: as RunTraining().
[[nodiscard]] Status RunPlain(const TrainOptions& options);

}  // namespace weft::runtime

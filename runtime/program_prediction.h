// What the planner says of a program's run, from a calibration and a cluster.
#pragma once

#include <optional>
#include <vector>

#include "common/result.h"
#include "planner/planner.h"
#include "planner/tasks/program_timeline.h"
#include "runtime/program_report.h"
#include "runtime/train_job.h"

namespace weft::runtime {

struct Prediction {
  std::vector<Seconds> least;                        ///< of the rank's computations, by instruction; empty: they are not stretched
  std::optional<planner::ProgramTimeline> timeline;  ///< nullopt without a cluster
  std::vector<Bytes> peak;                           ///< by rank; empty: not known
};

/// Nothing without options.calibration but the memory. `place`: of this rank in the program. Errors: those of the files; kNotFound for a
/// computation that the calibration lacks; kInvalidArgument for a cluster with fewer devices than ranks.
[[nodiscard]] Result<Prediction> Predict(const TrainOptions& options, const planner::ModelSpec& model,
                                         const planner::StepProgram& program, int place);

/// A rank's part of it; what is not known is left out.
RankPlanned PlannedOf(const Prediction& prediction, size_t rank);

}  // namespace weft::runtime

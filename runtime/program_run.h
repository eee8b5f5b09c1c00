// Runs step programs one after the other on this rank: steps, checkpoints between them, and the change from one program to the
// next, in memory.
#pragma once

#include <memory>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/net_plugin.h"
#include "common/result.h"
#include "planner/planner.h"
#include "runtime/text_data.h"
#include "runtime/train_job.h"

namespace weft::runtime {

/// Model and text, as every run reads them.
struct ProgramInput {
  planner::ModelSpec model;
  TextData text;
};

/// A program and the step at which it begins.
struct Phase {
  int64_t begin = 0;
  planner::StepProgram program;
};

/// Of all ranks; null for one rank. Members in the order in which they are needed.
struct JobConnections {
  std::unique_ptr<collectives::NetPlugin> plugin;
  std::unique_ptr<collectives::Bootstrap> bootstrap;
};

/// Prints a line on rank 0. Errors: the system's.
[[nodiscard]] Status Print(const TrainOptions& options, const std::string& line);

/// All steps of options.steps that are left. Requires: phases of the same model, batch, sequence and type, the first at step 0,
/// none for more ranks than the run has; ranks beyond those of a program stand by. The same on all ranks. Errors: those of the
/// executor, of checkpoints and of communication, with the step in front; the other ranks are told.
[[nodiscard]] Status RunPhases(const TrainOptions& options, const ProgramInput& input, const std::vector<Phase>& phases,
                               JobConnections& connections);

}  // namespace weft::runtime

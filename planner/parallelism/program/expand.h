// From a strategy to the program of one training step: what weft-train executes. Schedule, groups, volumes and exchanges are those
// of strategy.h and of CostModel::Lower(); a test holds the two accounts of volumes together.
#pragma once

#include <optional>
#include <string>

#include "common/result.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/step_program.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// Why no program is made of a legal strategy: the first variable, or trait of the model, that weft-train does not execute, with
/// its value and what was expected; nullopt if there is one.
std::optional<std::string> WhyNoProgram(const JobSpec& job, const Strategy& strategy);

/// The program of `strategy` for all its ranks. Errors: kInvalidArgument for an illegal strategy (WhyIllegal) or one without a
/// program (WhyNoProgram). Complexity: O(passes · layers of all stages).
[[nodiscard]] Result<StepProgram> ExpandProgram(const JobSpec& job, const Strategy& strategy, ElementType type);

}  // namespace weft::planner::parallelism

// From a strategy to the program of one training step: what weft-train executes. Schedule, groups, volumes and exchanges are those
// of strategy.h and of CostModel::Lower(); a test holds the two accounts of volumes together.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "common/result.h"
#include "planner/parallelism/operator_sharding.h"
#include "planner/parallelism/strategy.h"
#include "planner/tasks/step_program.h"
#include "planner/workload/job_spec.h"

namespace weft::planner::inline parallelism {

/// Replicas on machines that are alike, and what of the batch they have, each the same.
struct BatchShare {
  int64_t replicas = 1, sequences = 0;
};

/// What of a plan is not in its strategy.
struct ProgramChoices {
  std::span<const StageOperators> operators = {};  ///< of sharding=osdp: what the operators of each stage do
  AlgorithmSpec sums = {};                         ///< how replicas sum gradients: a ring, trees, in levels, on servers
  int64_t gossip_units = 1;                        ///< of data_sync=gossip: replicas that sum among themselves
  std::span<const BatchShare> shares = {};         ///< of all replicas, in order; empty: all have the same
  std::span<const int64_t> layers = {};            ///< of each stage, where machines are not alike; empty: as evenly as can be
};

/// The choices of a plan: its operators' decisions, and how its list of operations (CostModel::Lower) sums gradients.
/// Requires: a legal strategy, its list; `operators` stay.
ProgramChoices ChoicesOf(const Strategy& strategy, std::span<const StageOperators> operators, const OperationList& list,
                         int64_t gpus_per_node);

/// Why no program is made of a legal strategy: the first variable, or trait of the model, that weft-train does not execute, with
/// its value and what was expected; nullopt if there is one.
std::optional<std::string> WhyNoProgram(const JobSpec& job, const Strategy& strategy, const ProgramChoices& choices = {});

/// The program of `strategy` for all its ranks. Errors: kInvalidArgument for an illegal strategy (WhyIllegal; with shares, one that
/// would be illegal if all replicas had one of them) or one without a program (WhyNoProgram). Complexity: O(passes · layers of all
/// stages).
[[nodiscard]] Result<StepProgram> ExpandProgram(const JobSpec& job, const Strategy& strategy, ElementType type,
                                                const ProgramChoices& choices = {});

}  // namespace weft::planner::parallelism

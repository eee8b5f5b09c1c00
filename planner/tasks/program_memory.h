// What the tensors of a rank take while it runs its list: units, values until their last reader, what passes keep for the backward
// ones, and what a computation needs besides while it runs. The account of runtime/model, part by part, in bytes.
//
//   const Bytes peak = PeakMemoryOf(program, model, rank);
//
// Leaves out: what the allocator loses to fragments, buffers of the network plugin.
#pragma once

#include <cstdint>

#include "common/units.h"
#include "planner/tasks/program_timeline.h"
#include "planner/tasks/step_program.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline tasks {

/// Elements whose squares a rank adds up at once, in double precision.
inline constexpr int64_t kSquaredAtOnce = 1 << 14;

/// The most of a step behind the first. `timeline` says when communications are over and give back what they hold; without one those
/// of values are over at once, those of units when somebody waits for them. Requires: a checked program of the model,
/// 0 <= rank < ranks. Complexity: linear in the rank's list.
Bytes PeakMemoryOf(const StepProgram& program, const ModelSpec& model, int64_t rank, const RankTimeline* timeline = nullptr);

}  // namespace weft::planner::tasks

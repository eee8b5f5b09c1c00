// How a step program's communications run: the schedule of each, and what follows of who sends how much to whom. The executor runs
// these, and who wants to know a program's traffic reads it here.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/collectives/schedule.h"
#include "planner/tasks/program_tasks.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline tasks {

/// The steps of a communication of `ranks` ranks; `sums`: how they make a kAllReduce; `root`: of kBroadcast and kReduce. Of a message rank
/// 0 sends to rank 1. Requires: Communicates(action), ranks ≥ 2. Errors: those of MakeSchedule().
[[nodiscard]] Result<Schedule> ScheduleOf(StepAction action, const AlgorithmSpec& sums, int32_t ranks, RankId root);

/// What one rank of the program sends another.
struct RankFlow {
  int32_t from = 0, to = 0;
  double bytes = 0;
};

/// All that a group's communication sends, each pair once. Requires: a call of a checked program, whose gradients are sent whole.
/// Errors: those of ScheduleOf(). Complexity: O(steps of the schedule).
[[nodiscard]] Result<std::vector<RankFlow>> FlowsOf(const StepProgram& program, const GroupCall& call);

}  // namespace weft::planner::tasks

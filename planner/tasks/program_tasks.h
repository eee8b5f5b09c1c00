// A step program as tasks of a graph (task_graph.h): so many steps of all its ranks, several programs in one graph where they share
// what they run on. What an instruction takes and occupies is the caller's to say; what waits for what is what
// runtime/execute/executor.h does.
//
//   TaskGraph graph;
//   std::vector<PortUse> uses;
//   WEFT_ASSIGN_OR_RETURN(const std::vector<RankTasks> ranks, AddProgram(program, costs, {.steps = 3}, &graph, &uses));
//   const std::vector<TaskSpan> spans = RunTasks(graph, uses, ports);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/tasks/port_sharing.h"
#include "planner/tasks/step_program.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner::inline tasks {

/// What an instruction takes by itself, and what it keeps busy meanwhile.
struct TaskCost {
  Seconds duration{0};
  PortUse use = {};
};

/// A communication of a group, as each member has it in its list: of a message one sends and the other receives.
struct GroupCall {
  int32_t communicator = -1;
  std::vector<std::pair<int32_t, const Instruction*>> members;  ///< rank and instruction, in the order of the group
};

struct ProgramCosts {
  std::function<TaskCost(int32_t rank, int32_t instruction)> compute;
  std::function<TaskCost(const GroupCall&)> communicate;
};

struct ProgramSteps {
  int steps = 1;
  std::span<const int32_t> gates = {};  ///< tasks of the graph before which no rank begins the step of that number; empty: none
};

inline constexpr int32_t kNoTask = -1;

/// A task of the rank's own thread, and the communications that end its wait.
struct OwnTask {
  int32_t task = kNoTask;
  std::vector<std::pair<int32_t, CommunicatorKind>> waits;
};

/// One rank's.
struct RankTasks {
  std::vector<int32_t> ends;          ///< by step: the task that ends it
  std::vector<int32_t> instructions;  ///< of the last step; kNoTask where the step leaves it out
  std::vector<OwnTask> own;           ///< of the last step, in order
};

inline constexpr int64_t kMostProgramTasks = 8'000'000;

/// Ranks begin a step when they are through with the one before. Instructions that run every few steps only are left out. Requires: a
/// checked program, `uses` of the tasks that the graph has. Errors: kInvalidArgument for more than kMostProgramTasks;
/// kFailedPrecondition for a program whose ranks wait for each other. Complexity: O(instructions of all ranks · steps).
[[nodiscard]] Result<std::vector<RankTasks>> AddProgram(const StepProgram& program, const ProgramCosts& costs,
                                                        const ProgramSteps& steps, TaskGraph* graph, std::vector<PortUse>* uses);

}  // namespace weft::planner::tasks

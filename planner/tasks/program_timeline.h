// When each instruction of a step program runs: the program as a task graph (task_graph.h) of all its ranks, whose longest path is
// the iteration. What an instruction takes is the caller's to say; what waits for what is what runtime/execute/executor.h does.
//
//   WEFT_ASSIGN_OR_RETURN(const ProgramTimeline timeline, TimelineOf(program, times));
//   timeline.ranks[0].step, timeline.ranks[0].parts.bubble …
//
// Communications of different communicators that meet at a rank share its port (port_sharing.h). Leaves out: what they meet beyond it,
// and inside nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/result.h"
#include "common/units.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline tasks {

/// What instructions take, each by itself.
struct InstructionTimes {
  std::function<Seconds(const RankClass&, const Instruction&)> compute;
  std::function<Seconds(const RankClass&, const Instruction&)> communicate;
  /// Of a member's port to the network, 0 to 1, that a communication keeps busy meanwhile; empty: nobody is in another's way.
  std::function<double(const RankClass&, const Instruction&)> port_share = {};
};

/// Since the step's begin on its rank; both 0 where the step leaves it out.
struct InstructionSpan {
  Seconds begin{0}, end{0};
};

/// Where a rank's step goes. A wait counts by what ends it.
struct StepParts {
  Seconds compute{0};
  Seconds exposed{0};  ///< waiting for collectives
  Seconds bubble{0};   ///< waiting for messages of other stages, and for all ranks at the end
};

/// Whether waiting for a communicator's communication is a bubble.
constexpr bool WaitsForStages(CommunicatorKind kind) {
  return kind == CommunicatorKind::kPipeline || kind == CommunicatorKind::kEmbedding || kind == CommunicatorKind::kWorld;
}

struct RankTimeline {
  std::vector<InstructionSpan> instructions;  ///< of the rank's list
  Seconds step{0};                            ///< from the end of one step to that of the next: the iteration
  StepParts parts;
};

struct ProgramTimeline {
  std::vector<RankTimeline> ranks;
};

/// A step in the middle of a run, whose ranks begin when they are through with the one before. Instructions that run every few steps
/// only are left out. Requires: a checked program. Errors: those of AddProgram(). Complexity: RunTasks()'s of the instructions of all ranks.
[[nodiscard]] Result<ProgramTimeline> TimelineOf(const StepProgram& program, const InstructionTimes& times);

}  // namespace weft::planner::tasks

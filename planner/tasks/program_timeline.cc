#include "planner/tasks/program_timeline.h"

#include <algorithm>

#include "planner/tasks/program_tasks.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int kSteps = 3;  // the first begins on all ranks at once, the last is looked at

/// Sending and receiving ports of the ranks, numbered 2 · rank and 2 · rank + 1.
PortUse PortsOf(const GroupCall& call, double share) {
  PortUse use;
  if (share <= 0) return use;
  for (const auto& [rank, instruction] : call.members) {
    const bool receives = instruction->action == StepAction::kReceive, sends = instruction->action == StepAction::kSend;
    if (!receives) use.push_back({2 * rank, share});
    if (!sends) use.push_back({2 * rank + 1, share});
  }
  return use;
}

ProgramCosts CostsOf(const StepProgram& program, const InstructionTimes& times) {
  const auto list_of = [&program](int32_t rank) -> const RankClass& {
    return program.classes[static_cast<size_t>(program.ranks[static_cast<size_t>(rank)].rank_class)];
  };
  return {.compute =
              [list_of, &times](int32_t rank, int32_t k) {
                const RankClass& list = list_of(rank);
                return TaskCost{.duration = times.compute(list, list.instructions[static_cast<size_t>(k)])};
              },
          .communicate =
              [list_of, &times](const GroupCall& call) {
                const RankClass& list = list_of(call.members.front().first);
                const Instruction& i = *call.members.front().second;
                return TaskCost{.duration = times.communicate(list, i),
                                .use = PortsOf(call, times.port_share ? times.port_share(list, i) : 0)};
              }};
}

RankTimeline Read(const RankTasks& rank, const std::vector<TaskSpan>& spans) {
  const auto span = [&](int32_t task) -> const TaskSpan& { return spans[static_cast<size_t>(task)]; };
  RankTimeline of;
  const Seconds begin = span(rank.ends[kSteps - 2]).end;
  of.step = span(rank.ends[kSteps - 1]).end - begin;
  for (const int32_t task : rank.instructions) {
    of.instructions.push_back(task == kNoTask ? InstructionSpan()
                                              : InstructionSpan{span(task).begin - begin, span(task).end - begin});
  }
  Seconds until = begin;  // its own thread is through with what came before
  for (const OwnTask& own : rank.own) {
    const TaskSpan& w = span(own.task);
    of.parts.compute += w.end - w.begin;
    Seconds latest{0};
    CommunicatorKind kind = CommunicatorKind::kWorld;
    for (const auto& [task, of_kind] : own.waits) {
      if (span(task).end > latest) latest = span(task).end, kind = of_kind;
    }
    (WaitsForStages(kind) ? of.parts.bubble : of.parts.exposed) += w.begin - until;
    until = w.end;
  }
  return of;
}

}  // namespace

Result<ProgramTimeline> TimelineOf(const StepProgram& program, const InstructionTimes& times) {
  TaskGraph graph;
  std::vector<PortUse> uses;
  WEFT_ASSIGN_OR_RETURN(const std::vector<RankTasks> ranks,
                        AddProgram(program, CostsOf(program, times), {.steps = kSteps}, &graph, &uses));
  const std::vector<TaskSpan> spans = RunTasks(graph, uses, 2 * static_cast<int32_t>(ranks.size()));
  ProgramTimeline timeline;
  for (const RankTasks& rank : ranks) timeline.ranks.push_back(Read(rank, spans));
  return timeline;
}

}  // namespace weft::planner::tasks

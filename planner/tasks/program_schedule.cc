#include "planner/tasks/program_schedule.h"

#include <map>
#include <utility>

#include "common/check.h"
#include "planner/collectives/algorithm.h"
#include "planner/collectives/ring.h"

namespace weft::planner::inline tasks {
namespace {

Collective CollectiveOf(StepAction action) {
  switch (action) {
    case StepAction::kAllGather: return Collective::kAllGather;
    case StepAction::kReduceScatter: return Collective::kReduceScatter;
    case StepAction::kAllToAll: return Collective::kAllToAll;
    case StepAction::kBroadcast: return Collective::kBroadcast;
    case StepAction::kSend:
    case StepAction::kReceive: return Collective::kSendRecv;
    default: return Collective::kAllReduce;
  }
}

}  // namespace

Result<Schedule> ScheduleOf(StepAction action, const AlgorithmSpec& sums, int32_t ranks, RankId root) {
  if (action == StepAction::kReduce) return RingReduce(ranks, root);
  if (action == StepAction::kHalo) return NeighbourExchange(ranks);
  if (action == StepAction::kShift || action == StepAction::kMix) return RingShift(ranks);
  const Collective collective = CollectiveOf(action);
  return MakeSchedule(collective == Collective::kAllReduce ? sums : AlgorithmSpec(), collective, ranks, root);
}

Result<std::vector<RankFlow>> FlowsOf(const StepProgram& program, const GroupCall& call) {
  const auto& [first, instruction] = call.members.front();
  const Instruction& i = *instruction;
  WEFT_CHECK(i.wire == WireType::kWhole, "flows of narrow gradients");
  const RankClass& list = program.classes[static_cast<size_t>(program.ranks[static_cast<size_t>(first)].rank_class)];
  const auto ranks = static_cast<int32_t>(call.members.size());
  const auto bytes = static_cast<double>(BytesOn(program, list, i, first));
  const bool rooted = i.action == StepAction::kBroadcast || i.action == StepAction::kReduce;
  const AlgorithmSpec& sums = program.communicators[static_cast<size_t>(call.communicator)].sums;
  WEFT_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleOf(i.action, sums, ranks, RankId(rooted ? i.tag : 0)));
  std::map<std::pair<int32_t, int32_t>, int64_t> chunks;
  for (int32_t r = 0; r < ranks; ++r) {
    for (const Step& step : schedule.ranks[static_cast<size_t>(r)]) {
      if (step.kind == StepKind::kSend) ++chunks[{r, static_cast<int32_t>(step.peer.value())}];
    }
  }
  std::vector<RankFlow> flows;
  for (const auto& [pair, count] : chunks) {
    flows.push_back({.from = call.members[static_cast<size_t>(pair.first)].first,
                     .to = call.members[static_cast<size_t>(pair.second)].first,
                     .bytes = bytes * static_cast<double>(count) / schedule.chunk_count});
  }
  return flows;
}

}  // namespace weft::planner::tasks

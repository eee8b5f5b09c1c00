#include "runtime/execute/program_groups.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace weft::runtime {
namespace {

using planner::Collective;
using planner::StepAction;

Collective CollectiveOf(StepAction action) {
  switch (action) {
    case StepAction::kAllGather: return Collective::kAllGather;
    case StepAction::kReduceScatter: return Collective::kReduceScatter;
    case StepAction::kAllToAll: return Collective::kAllToAll;
    case StepAction::kSend:
    case StepAction::kReceive: return Collective::kSendRecv;
    default: return Collective::kAllReduce;
  }
}

Result<planner::Schedule> ScheduleOf(StepAction action, int32_t ranks) {
  if (action == StepAction::kShift) return planner::RingShift(ranks);
  return planner::RingSchedule(CollectiveOf(action), ranks);
}

collectives::ReduceOperation OperationOf(StepAction action) {
  return action == StepAction::kAllReduceMax ? collectives::ReduceOperation::kLargest : collectives::ReduceOperation::kSum;
}

/// Elements of one of n equal cuts of `elements`, as a schedule cuts them.
int64_t CutElements(int64_t elements, int64_t n, int64_t index) { return (index + 1) * elements / n - index * elements / n; }

}  // namespace

Result<std::unique_ptr<ProgramGroups>> ProgramGroups::Connect(const planner::StepProgram& program, int rank,
                                                              collectives::NetPlugin* plugin, collectives::Bootstrap* bootstrap,
                                                              const collectives::CommunicatorOptions& options,
                                                              const std::vector<int>& rank_of_place) {
  auto groups = std::unique_ptr<ProgramGroups>(new ProgramGroups());
  for (const planner::ProgramCommunicator& of_program : program.communicators) {
    const planner::GroupPlace place = planner::PlaceIn(of_program, rank);
    groups->places_.push_back(place);
    Group& group = groups->groups_.emplace_back();
    group.kind = of_program.kind;
    group.size = static_cast<int64_t>(of_program.groups.front().size());
    if (place.group < 0) {  // the others exchange handles over all ranks
      WEFT_RETURN_IF_ERROR(bootstrap->AllGather({}));
      continue;
    }
    std::vector<int> members;
    for (const int32_t member : of_program.groups[static_cast<size_t>(place.group)])
      members.push_back(rank_of_place.empty() ? member : rank_of_place[static_cast<size_t>(member)]);
    group.bootstrap = collectives::Bootstrap::Of(*bootstrap, std::move(members));
    WEFT_ASSIGN_OR_RETURN(group.communicator, collectives::Communicator::Create(*plugin, *group.bootstrap, options));
    WEFT_RETURN_IF_ERROR(group.communicator->ConnectAll());
  }
  return groups;
}

int64_t ProgramGroups::SizeOf(int32_t communicator) const { return groups_[static_cast<size_t>(communicator)].size; }

Status ProgramGroups::Run(int32_t communicator, const Transfer& t) {
  Group& group = groups_[static_cast<size_t>(communicator)];
  const planner::GroupPlace place = places_[static_cast<size_t>(communicator)];
  WEFT_CHECK(group.communicator != nullptr, "a communicator that this rank is no member of");
  auto known = group.schedules.find(t.action);
  if (known == group.schedules.end()) {
    WEFT_ASSIGN_OR_RETURN(planner::Schedule schedule, ScheduleOf(t.action, static_cast<int32_t>(group.size)));
    known = group.schedules.emplace(t.action, std::move(schedule)).first;
  }
  const Bytes before = group.communicator->bytes_sent();
  if (t.lasting) {
    WEFT_RETURN_IF_ERROR(group.communicator->Run(known->second, t.type, t.elements, t.input, t.output, OperationOf(t.action)));
  } else {
    WEFT_RETURN_IF_ERROR(Staged(group, known->second, t, place));
  }
  const StepAction counted = t.action == StepAction::kAllReduceMax ? StepAction::kAllReduce : t.action;
  SentBytes& sent = group.sent[counted];
  sent = {group.kind, counted, sent.calls + 1, sent.bytes + (group.communicator->bytes_sent() - before).count()};
  return Ok();
}

Status ProgramGroups::Staged(Group& group, const planner::Schedule& schedule, const Transfer& t, planner::GroupPlace place) {
  const size_t element = collectives::ElementBytes(t.type);
  const bool gathers = t.action == StepAction::kAllGather, scatters = t.action == StepAction::kReduceScatter;
  const auto cut = static_cast<size_t>(CutElements(t.elements, group.size, place.index)) * element;
  const size_t full = static_cast<size_t>(t.elements) * element;
  const size_t in = t.input == nullptr ? 0 : gathers ? cut : full, out = t.output == nullptr ? 0 : scatters ? cut : full;
  const bool in_place = t.action == StepAction::kAllReduce || t.action == StepAction::kAllReduceMax;
  const size_t needed = in_place ? full : in + out;
  if (group.staging.size() < needed) {
    group.communicator->Forget(group.staging.data(), Bytes(static_cast<int64_t>(group.staging.size())));
    group.staging.resize(needed);
  }
  std::byte* const source = group.staging.data();
  std::byte* const target = in_place ? source : source + in;
  if (in > 0) std::memcpy(source, t.input, in);
  WEFT_RETURN_IF_ERROR(group.communicator->Run(schedule, t.type, t.elements, in > 0 ? source : nullptr, out > 0 ? target : nullptr,
                                               OperationOf(t.action)));
  if (out > 0) std::memcpy(t.output, target, out);
  return Ok();
}

std::vector<SentBytes> ProgramGroups::Sent() const {
  std::map<std::pair<planner::CommunicatorKind, StepAction>, SentBytes> sums;
  for (const Group& group : groups_) {
    for (const auto& [action, sent] : group.sent) {
      if (action == StepAction::kReceive) continue;
      SentBytes& sum = sums[{group.kind, action}];
      sum = {group.kind, action, sum.calls + sent.calls, sum.bytes + sent.bytes};
    }
  }
  std::vector<SentBytes> list;
  for (const auto& [key, sum] : sums) list.push_back(sum);
  return list;
}

}  // namespace weft::runtime

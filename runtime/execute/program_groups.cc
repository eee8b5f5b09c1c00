#include "runtime/execute/program_groups.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "planner/tasks/program_schedule.h"
#include "runtime/execute/narrow.h"

namespace weft::runtime {
namespace {

using planner::Collective;
using planner::StepAction;

collectives::ReduceOperation OperationOf(StepAction action) {
  return action == StepAction::kAllReduceMax ? collectives::ReduceOperation::kLargest : collectives::ReduceOperation::kSum;
}

/// Neither zero nor equal, so that a computation on it is like any other.
template <typename T>
void FillPattern(void* memory, int64_t elements) {
  T* const values = static_cast<T*>(memory);
  for (int64_t i = 0; i < elements; ++i) values[i] = static_cast<T>(i * 7 % 101 - 50) / 100;
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
    group.sums = of_program.sums;
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

std::unique_ptr<ProgramGroups> ProgramGroups::Apart(const planner::StepProgram& program, int rank) {
  auto groups = std::unique_ptr<ProgramGroups>(new ProgramGroups());
  groups->apart_ = true;
  for (const planner::ProgramCommunicator& of_program : program.communicators) {
    groups->places_.push_back(planner::PlaceIn(of_program, rank));
    Group& group = groups->groups_.emplace_back();
    group.kind = of_program.kind;
    group.size = static_cast<int64_t>(of_program.groups.front().size());
  }
  return groups;
}

namespace {

void MakeUp(const Transfer& t, int64_t n, int64_t index) {
  if (t.output == nullptr) return;
  const size_t element = collectives::ElementBytes(t.type);
  auto* const out = static_cast<std::byte*>(t.output);
  const auto* const in = static_cast<const std::byte*>(t.input);
  const auto at = [&](int64_t place) { return static_cast<size_t>(place * t.elements / n) * element; };
  if (in == nullptr && t.type == collectives::DataType::kFloat64) return FillPattern<double>(out, t.elements);
  if (in == nullptr) return FillPattern<float>(out, t.elements);
  if (t.action == StepAction::kReduceScatter) {
    std::memmove(out, in + at(index), at(index + 1) - at(index));
  } else if (t.action == StepAction::kAllGather) {
    const size_t own = at(index + 1) - at(index);
    if (in == out + at(index)) return;
    for (int64_t place = 0; place < n; ++place) std::memmove(out + at(place), in, std::min(own, at(place + 1) - at(place)));
  } else if (in != out) {
    std::memmove(out, in, static_cast<size_t>(t.elements) * element);
  }
}

}  // namespace

int64_t ProgramGroups::SizeOf(int32_t communicator) const { return groups_[static_cast<size_t>(communicator)].size; }

Status ProgramGroups::Run(int32_t communicator, const Transfer& transfer) {
  Group& group = groups_[static_cast<size_t>(communicator)];
  const planner::GroupPlace place = places_[static_cast<size_t>(communicator)];
  if (apart_) {
    MakeUp(transfer, group.size, place.index);
    return Ok();
  }
  Transfer t = transfer;
  const bool sums = t.action == StepAction::kReduce, rooted = sums || t.action == StepAction::kBroadcast;
  if (sums && place.index != t.root) t.output = nullptr;
  if (rooted && !sums && place.index != t.root) t.input = nullptr;
  if (!rooted) t.root = 0;
  WEFT_CHECK(group.communicator != nullptr, "a communicator that this rank is no member of");
  if (t.elements == 0) return Ok();  // shards of a unit with fewer elements than ranks
  auto known = group.schedules.find({t.action, t.root});
  if (known == group.schedules.end()) {
    WEFT_ASSIGN_OR_RETURN(planner::Schedule schedule,
                          planner::ScheduleOf(t.action, group.sums, static_cast<int32_t>(group.size), RankId(t.root)));
    known = group.schedules.emplace(std::pair(t.action, t.root), std::move(schedule)).first;
  }
  const Bytes before = group.communicator->bytes_sent();
  if (t.wire != planner::WireType::kWhole) {
    WEFT_RETURN_IF_ERROR(t.type == collectives::DataType::kFloat64 ? RunNarrow<double>(group, t, place)
                                                                   : RunNarrow<float>(group, t, place));
  } else if (t.lasting) {
    WEFT_RETURN_IF_ERROR(group.communicator->Run(known->second, t.type, t.elements, t.input, t.output, OperationOf(t.action)));
  } else {
    WEFT_RETURN_IF_ERROR(Staged(group, known->second, t, place));
  }
  const StepAction counted = planner::CountedAs(t.action);
  SentBytes& sent = group.sent[counted];
  sent = {group.kind, counted, sent.calls + 1, sent.bytes + (group.communicator->bytes_sent() - before).count()};
  return Ok();
}

/// Every rank sends its neighbours' cuts to them, and has its own from all: these are summed in the order of the group. Of an
/// all-reduce the sums are made narrow again, and gathered.
template <typename T>
Status ProgramGroups::RunNarrow(Group& group, const Transfer& t, planner::GroupPlace place) {
  const int64_t n = group.size, longest = (t.elements + n - 1) / n;
  const auto piece = static_cast<size_t>(planner::NarrowBytes(t.wire, longest)), all = piece * static_cast<size_t>(n);
  if (group.narrow.sent.size() < all) {
    for (std::vector<std::byte>* memory : {&group.narrow.sent, &group.narrow.received}) {
      group.communicator->Forget(memory->data(), Bytes(static_cast<int64_t>(memory->size())));
      memory->assign(all, std::byte{0});
    }
  }
  std::byte *const sent = group.narrow.sent.data(), *const received = group.narrow.received.data();
  const auto cut = [&](void* memory, int64_t index) {
    return std::span(static_cast<T*>(memory) + index * t.elements / n, static_cast<size_t>(CutElements(t.elements, n, index)));
  };
  std::vector<T> values(static_cast<size_t>(longest)), left_out(values.size());
  for (int64_t index = 0; index < n; ++index) {
    const std::span<T> own = cut(const_cast<void*>(t.input), index);
    std::copy(own.begin(), own.end(), values.begin());
    const std::span<T> part = std::span(values).first(own.size());
    const std::span<T> remainder = t.remainder == nullptr ? std::span<T>() : cut(t.remainder, index);
    for (size_t i = 0; i < remainder.size(); ++i) part[i] += remainder[i];
    Narrow<T>(t.wire, part, sent + static_cast<size_t>(index) * piece);
    if (remainder.empty()) continue;
    const std::span<T> rounded = std::span(left_out).first(own.size());
    Widen<T>(t.wire, sent + static_cast<size_t>(index) * piece, rounded);
    for (size_t i = 0; i < remainder.size(); ++i) remainder[i] = part[i] - rounded[i];
  }
  const auto move = [&](Collective collective, const std::byte* in, std::byte* out) -> Status {
    WEFT_ASSIGN_OR_RETURN(const planner::Schedule schedule, planner::RingSchedule(collective, static_cast<int32_t>(n)));
    return group.communicator->Run(schedule, collectives::DataType::kByte, static_cast<int64_t>(all), in, out);
  };
  WEFT_RETURN_IF_ERROR(move(Collective::kAllToAll, sent, received));
  const std::span<T> sum = std::span(values).first(static_cast<size_t>(CutElements(t.elements, n, place.index)));
  const std::span<T> one = std::span(left_out).first(sum.size());
  std::fill(sum.begin(), sum.end(), T{0});
  for (int64_t index = 0; index < n; ++index) {
    Widen<T>(t.wire, received + static_cast<size_t>(index) * piece, one);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  if (t.action == StepAction::kReduceScatter) {
    std::copy(sum.begin(), sum.end(), static_cast<T*>(t.output));
    return Ok();
  }
  Narrow<T>(t.wire, sum, sent);
  WEFT_RETURN_IF_ERROR(move(Collective::kAllGather, sent, received));
  for (int64_t index = 0; index < n; ++index) Widen<T>(t.wire, received + static_cast<size_t>(index) * piece, cut(t.output, index));
  return Ok();
}

Status ProgramGroups::Staged(Group& group, const planner::Schedule& schedule, const Transfer& t, planner::GroupPlace place) {
  const size_t element = collectives::ElementBytes(t.type);
  const bool gathers = t.action == StepAction::kAllGather, scatters = t.action == StepAction::kReduceScatter;
  const auto cut = static_cast<size_t>(CutElements(t.elements, group.size, place.index)) * element;
  const size_t full = static_cast<size_t>(t.elements) * element;
  const size_t in = t.input == nullptr ? 0 : gathers ? cut : full, out = t.output == nullptr ? 0 : scatters ? cut : full;
  const bool in_place = planner::CountedAs(t.action) == StepAction::kAllReduce;
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
  if (t.action != StepAction::kHalo) return Ok();
  // At the ends of the line nothing came.
  if (place.index == 0) std::memset(t.output, 0, out / 2);
  if (place.index + 1 == group.size) std::memset(static_cast<std::byte*>(t.output) + out / 2, 0, out / 2);
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

#include "planner/tasks/program_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "planner/tasks/port_sharing.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner::inline tasks {
namespace {

constexpr int kSteps = 3;  // the first begins on all ranks at once, the last is looked at
constexpr int32_t kNone = -1;

/// Puts the instructions of all ranks into a task graph. A rank goes through its list as far as what it waits for has a task; a
/// communication has one once all its members have come to it.
class Builder {
 public:
  Builder(const StepProgram& program, const InstructionTimes& times) : program_(program), times_(times) {
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      const auto c = static_cast<size_t>(program.ranks[r].rank_class);
      Rank& rank = ranks_.emplace_back(
          Rank{.number = static_cast<int32_t>(r), .list = &program.classes[c], .waits = ListWaits(program.classes[c])});
      for (const ProgramCommunicator& communicator : program.communicators) {
        rank.places.push_back(PlaceIn(communicator, static_cast<int32_t>(r)));
      }
      rank.Begin();
    }
    for (const ProgramCommunicator& communicator : program.communicators) {
      std::vector<Group>& groups = groups_.emplace_back();
      for (const auto& members : communicator.groups) groups.push_back({.waiting = std::vector<std::deque<Waiting>>(members.size())});
    }
  }

  Result<ProgramTimeline> Build() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) moved |= Advance(rank);
      for (size_t c = 0; c < groups_.size(); ++c) {
        for (size_t g = 0; g < groups_[c].size(); ++g) moved |= Join(c, g);
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].step == kSteps) continue;
      return Fail(Code::kFailedPrecondition, fmt::format("timeline: rank {} never comes beyond instruction {}", r, ranks_[r].at));
    }
    return Read();
  }

 private:
  /// A task of the rank's own thread, and the communication that ends its wait.
  struct Own {
    int32_t task, instruction;
    std::vector<std::pair<int32_t, CommunicatorKind>> waits;
  };
  struct Rank {
    int32_t number;
    const RankClass* list;
    ListWaits waits;
    std::vector<GroupPlace> places = {};  // by communicator
    int step = 0;
    size_t at = 0;
    int32_t chain = kNone;                // last task of its own thread
    std::vector<int32_t> task = {};       // of this step, by instruction; kNone: not yet
    std::vector<Own> own = {};            // of the last step
    std::vector<int32_t> ends = {};       // of each step

    void Begin() {
      task.assign(list->instructions.size(), kNone);
      waits.BeginStep();
      own.clear();
      at = 0;
    }
  };
  struct Waiting {
    Rank* rank;
    int32_t instruction;
    std::vector<int32_t> after;  // tasks
    std::vector<int32_t> needs;  // instructions of the rank
  };
  struct Group {
    std::vector<std::deque<Waiting>> waiting;  // by member
    int32_t last = kNone, last_received = kNone;
  };

  static const Instruction& At(const Rank& rank, int32_t k) { return rank.list->instructions[static_cast<size_t>(k)]; }

  /// False where one of these has no task yet.
  static bool AllThere(const Rank& rank, const std::vector<int32_t>& instructions) {
    return std::ranges::all_of(instructions, [&](int32_t k) { return rank.task[static_cast<size_t>(k)] != kNone; });
  }

  void AddOwn(Rank& rank, int32_t instruction, Seconds duration, const std::vector<int32_t>& waits) {
    Own own{.task = 0, .instruction = instruction, .waits = {}};
    std::vector<int32_t> after;
    if (rank.chain != kNone) after.push_back(rank.chain);
    for (const int32_t k : waits) {
      const int32_t task = rank.task[static_cast<size_t>(k)];
      after.push_back(task);
      if (!Communicates(At(rank, k).action)) continue;
      own.waits.emplace_back(task, program_.communicators[static_cast<size_t>(At(rank, k).communicator)].kind);
    }
    own.task = rank.chain = graph_.Add(duration, after);
    if (rank.step == kSteps - 1) rank.own.push_back(std::move(own));
  }

  /// As far as it goes.
  bool Advance(Rank& rank) {
    bool moved = false;
    while (rank.step < kSteps && (rank.at < rank.list->instructions.size() ? One(rank) : EndStep(rank))) moved = true;
    return moved;
  }

  bool One(Rank& rank) {
    const auto k = static_cast<int32_t>(rank.at);
    const Instruction& i = At(rank, k);
    if (i.every != 1) {
      ++rank.at;
      return true;
    }
    const std::vector<int32_t> waits = rank.waits.Own(k);
    if (!AllThere(rank, waits)) return false;
    if (!Communicates(i.action)) {
      AddOwn(rank, k, times_.compute(*rank.list, i), waits);
      rank.task[rank.at] = rank.chain;
    } else {
      if (!waits.empty()) AddOwn(rank, kNone, Seconds(0), waits);
      Enqueue(rank, k);
    }
    rank.waits.Pass(k);
    ++rank.at;
    return true;
  }

  void Enqueue(Rank& rank, int32_t k) {
    const Instruction& i = At(rank, k);
    Waiting waiting{.rank = &rank, .instruction = k, .after = {}, .needs = rank.waits.Before(k)};
    if (rank.chain != kNone) waiting.after.push_back(rank.chain);
    const auto c = static_cast<size_t>(i.communicator);
    const GroupPlace place = rank.places[c];
    groups_[c][static_cast<size_t>(place.group)].waiting[static_cast<size_t>(place.index)].push_back(std::move(waiting));
  }

  /// Adds the group's next communications while all members are there. A message is on its way once it is sent, whoever is there.
  bool Join(size_t c, size_t g) {
    Group& group = groups_[c][g];
    bool moved = false;
    while (std::ranges::all_of(group.waiting, [&](const std::deque<Waiting>& queue) {
      return !queue.empty() && AllThere(*queue.front().rank, queue.front().needs);
    })) {
      const Waiting& first = group.waiting.front().front();
      const Instruction& i = At(*first.rank, first.instruction);
      const bool message = i.action == StepAction::kSend || i.action == StepAction::kReceive;
      const Seconds duration = times_.communicate(*first.rank->list, i);
      std::vector<int32_t> after = {};
      if (group.last != kNone) after.push_back(group.last);
      PortUse use{.ports = {}, .share = times_.port_share ? times_.port_share(*first.rank->list, i) : 0};
      for (const std::deque<Waiting>& queue : group.waiting) {
        const Waiting& front = queue.front();
        const bool receives = At(*front.rank, front.instruction).action == StepAction::kReceive;
        if (!receives) use.ports.push_back(2 * front.rank->number);
        if (!message || receives) use.ports.push_back(2 * front.rank->number + 1);
        if (!receives) AddAfter(front, &after);
      }
      group.last = graph_.Add(duration, after);
      uses_.resize(static_cast<size_t>(group.last));
      uses_.push_back(std::move(use));
      for (std::deque<Waiting>& queue : group.waiting) {
        const Waiting& front = queue.front();
        const bool receives = message && At(*front.rank, front.instruction).action == StepAction::kReceive;
        front.rank->task[static_cast<size_t>(front.instruction)] = receives ? Receive(group, front) : group.last;
        queue.pop_front();
      }
      moved = true;
    }
    return moved;
  }

  static void AddAfter(const Waiting& waiting, std::vector<int32_t>* after) {
    after->insert(after->end(), waiting.after.begin(), waiting.after.end());
    for (const int32_t k : waiting.needs) after->push_back(waiting.rank->task[static_cast<size_t>(k)]);
  }

  int32_t Receive(Group& group, const Waiting& waiting) {
    std::vector<int32_t> after = {group.last};
    if (group.last_received != kNone) after.push_back(group.last_received);
    AddAfter(waiting, &after);
    return group.last_received = graph_.Add(Seconds(0), after);
  }

  bool EndStep(Rank& rank) {
    std::vector<int32_t> all;
    for (size_t k = 0; k < rank.task.size(); ++k) {
      const Instruction& i = rank.list->instructions[k];
      if (i.every != 1 || !Communicates(i.action)) continue;
      if (rank.task[k] == kNone) return false;
      all.push_back(static_cast<int32_t>(k));
    }
    AddOwn(rank, kNone, Seconds(0), all);
    rank.ends.push_back(rank.chain);
    if (++rank.step < kSteps) rank.Begin();
    return true;
  }

  ProgramTimeline Read() const {
    const std::vector<TaskSpan> spans = RunTasks(graph_, uses_, 2 * static_cast<int32_t>(ranks_.size()));
    const auto span = [&](int32_t task) -> const TaskSpan& { return spans[static_cast<size_t>(task)]; };
    ProgramTimeline timeline;
    for (const Rank& rank : ranks_) {
      RankTimeline& of = timeline.ranks.emplace_back();
      const Seconds begin = span(rank.ends[kSteps - 2]).end;
      of.step = span(rank.ends[kSteps - 1]).end - begin;
      for (const int32_t task : rank.task) {
        of.instructions.push_back(task == kNone ? InstructionSpan()
                                                : InstructionSpan{span(task).begin - begin, span(task).end - begin});
      }
      Seconds until = begin;  // its own thread is through with what came before
      for (const Own& own : rank.own) {
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
    }
    return timeline;
  }

  const StepProgram& program_;
  const InstructionTimes& times_;
  TaskGraph graph_;
  std::vector<PortUse> uses_;  // by task; sending and receiving port of each rank
  std::deque<Rank> ranks_;
  std::vector<std::vector<Group>> groups_;  // by communicator
};

}  // namespace

PartUnits::PartUnits(const RankClass& list) {
  for (size_t u = 0; u < list.units.size(); ++u) {
    for (int32_t b = 0; b < list.units[u].blocks; ++b) {
      const ParameterBlock& block = list.blocks[static_cast<size_t>(list.units[u].first_block + b)];
      places_.push_back({block.part, block.layer, block.slice, static_cast<int32_t>(u)});
    }
  }
}

std::vector<int32_t> PartUnits::Of(ModelPart part, int32_t layer, int32_t slice) const {
  std::vector<int32_t> units;
  const auto add = [&](ModelPart wanted, int32_t of_slice) {
    const auto at = std::ranges::find_if(
        places_, [&](const Place& p) { return p.part == wanted && p.layer == layer && p.slice == of_slice; });
    if (at != places_.end()) units.push_back(at->unit);
    return at != places_.end();
  };
  if (!add(part, slice) && part == ModelPart::kHead) add(ModelPart::kEmbedding, 0);
  if (part == ModelPart::kEmbedding) add(ModelPart::kPositions, 0);
  return units;
}

ListWaits::ListWaits(const RankClass& list) : list_(&list), units_(list), writer_(list.values.size(), kNone) {
  for (size_t k = 0; k < list.instructions.size(); ++k) {
    for (const int32_t value : list.instructions[k].outputs) writer_[static_cast<size_t>(value)] = static_cast<int32_t>(k);
  }
  BeginStep();
}

void ListWaits::BeginStep() {
  for (std::vector<int32_t>* last : {&last_on_unit_, &last_gather_, &last_mix_}) last->assign(list_->units.size(), kNone);
}

std::vector<int32_t> ListWaits::Own(int32_t k) const {
  const Instruction& i = At(k);
  std::vector<int32_t> waits;
  const auto add = [&](int32_t communication) {
    if (communication != kNone) waits.push_back(communication);
  };
  const auto unit = static_cast<size_t>(i.unit);
  if (Communicates(i.action)) {  // what may give the unit other memory waits for its last exchange
    if (i.unit < 0) return waits;
    const int32_t last = (i.action == StepAction::kMix ? last_mix_ : last_on_unit_)[unit];
    if (last == kNone) return waits;
    const bool in_place = i.of_shard || At(last).action == StepAction::kAllReduce;
    const bool arrives = !i.of_shard && i.action == StepAction::kReduceScatter && At(last).of_shard;
    if (!in_place || arrives) add(last);
    return waits;
  }
  for (const int32_t value : i.inputs) {
    const int32_t writer = writer_[static_cast<size_t>(value)];
    if (writer != kNone && Communicates(At(writer).action)) add(writer);
  }
  for (const int32_t need : i.needs) add(need);
  if (OfPart(i.action)) {
    for (const int32_t u : units_.Of(i.part, i.layer, i.slice)) add(last_on_unit_[static_cast<size_t>(u)]);
  }
  if (i.action == StepAction::kUpdate) add(last_on_unit_[unit]), add(last_mix_[unit]);
  if (i.action == StepAction::kRelease) add(last_gather_[unit]);
  return waits;
}

std::vector<int32_t> ListWaits::Before(int32_t k) const {
  const Instruction& i = At(k);
  std::vector<int32_t> before = i.needs;
  for (const int32_t value : i.inputs) {
    const int32_t writer = writer_[static_cast<size_t>(value)];
    if (writer != kNone) before.push_back(writer);
  }
  if (i.unit < 0) return before;
  const int32_t last = (i.action == StepAction::kMix ? last_mix_ : last_on_unit_)[static_cast<size_t>(i.unit)];
  if (last != kNone) before.push_back(last);
  return before;
}

void ListWaits::Pass(int32_t k) {
  const Instruction& i = At(k);
  if (!Communicates(i.action) || i.unit < 0) return;
  const auto unit = static_cast<size_t>(i.unit);
  (i.action == StepAction::kMix ? last_mix_ : last_on_unit_)[unit] = k;
  if (i.action == StepAction::kAllGather) last_gather_[unit] = k;
}

Result<ProgramTimeline> TimelineOf(const StepProgram& program, const InstructionTimes& times) {
  int64_t tasks = 0;
  for (const RankPlace& rank : program.ranks) {
    tasks += kSteps * std::ssize(program.classes[static_cast<size_t>(rank.rank_class)].instructions);
  }
  if (tasks > kMostTimelineTasks) {
    return Fail(Code::kInvalidArgument, fmt::format("timeline: {} instructions of all ranks, expected at most {}", tasks / kSteps,
                                                    kMostTimelineTasks / kSteps));
  }
  return Builder(program, times).Build();
}

}  // namespace weft::planner::tasks

#include "planner/tasks/program_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>

#include "planner/tasks/list_waits.h"

namespace weft::planner::inline tasks {
namespace {

/// Puts the instructions of all ranks into a task graph. A rank goes through its list as far as what it waits for has a task; a
/// communication has one once all its members have come to it.
class Builder {
 public:
  Builder(const StepProgram& program, const ProgramCosts& costs, const ProgramSteps& steps, TaskGraph* graph, std::vector<PortUse>* uses)
      : program_(program), costs_(costs), steps_(steps), graph_(*graph), uses_(*uses) {
    for (size_t r = 0; r < program.ranks.size(); ++r) {
      const auto c = static_cast<size_t>(program.ranks[r].rank_class);
      Rank& rank = ranks_.emplace_back(
          Rank{.number = static_cast<int32_t>(r), .list = &program.classes[c], .waits = ListWaits(program.classes[c])});
      for (const ProgramCommunicator& communicator : program.communicators) {
        rank.places.push_back(PlaceIn(communicator, static_cast<int32_t>(r)));
      }
      Begin(rank);
    }
    for (const ProgramCommunicator& communicator : program.communicators) {
      std::vector<Group>& groups = groups_.emplace_back();
      for (const auto& members : communicator.groups) groups.push_back({.waiting = std::vector<std::deque<Waiting>>(members.size())});
    }
  }

  Result<std::vector<RankTasks>> Build() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) moved |= Advance(rank);
      for (size_t c = 0; c < groups_.size(); ++c) {
        for (size_t g = 0; g < groups_[c].size(); ++g) moved |= Join(c, g);
      }
    }
    if (const std::string stuck = Stuck(); !stuck.empty()) {
      return Fail(Code::kFailedPrecondition, fmt::format("program: ranks wait for each other: {}", stuck));
    }
    std::vector<RankTasks> made;
    for (Rank& rank : ranks_) {
      made.push_back({.ends = std::move(rank.ends), .instructions = std::move(rank.task), .own = std::move(rank.own)});
    }
    return made;
  }

 private:
  struct Rank {
    int32_t number;
    const RankClass* list;
    ListWaits waits;
    std::vector<GroupPlace> places = {};  // by communicator
    int step = 0;
    size_t at = 0;
    int32_t chain = kNoTask;                // last task of its own thread
    std::vector<int32_t> task = {};       // of this step, by instruction; kNoTask: not yet
    std::vector<OwnTask> own = {};        // of the last step
    std::vector<int32_t> ends = {};       // of each step
  };
  struct Waiting {
    Rank* rank;
    int32_t instruction;
    std::vector<int32_t> after;  // tasks
    std::vector<int32_t> needs;  // instructions of the rank
  };
  struct Group {
    std::vector<std::deque<Waiting>> waiting;  // by member
    int32_t last = kNoTask, last_received = kNoTask;
  };

  /// Of the first few ranks that never come to the end: the instruction beyond which they do not, and what communications that stand in front
  /// of others wait for. Empty: all come to the end.
  std::string Stuck() const {
    constexpr size_t kMostNamed = 4;
    std::vector<std::string> lines;
    for (const Rank& rank : ranks_) {
      if (rank.step < steps_.steps && lines.size() < kMostNamed) lines.push_back(fmt::format("rank {} never comes beyond instruction {}", rank.number, rank.at));
    }
    if (lines.empty()) return "";
    for (const std::vector<Group>& groups : groups_) {
      for (const Group& group : groups) {
        for (const std::deque<Waiting>& queue : group.waiting) {
          if (queue.empty() || lines.size() >= 3 * kMostNamed) continue;
          const Waiting& front = queue.front();
          std::vector<int32_t> lacks;
          std::ranges::copy_if(front.needs, std::back_inserter(lacks),
                               [&](int32_t k) { return front.rank->task[static_cast<size_t>(k)] == kNoTask; });
          const std::string awaited = lacks.empty() ? "the other members" : fmt::format("its own {}", fmt::join(lacks, ", "));
          lines.push_back(fmt::format("rank {}'s communication {} waits for {}", front.rank->number, front.instruction, awaited));
        }
      }
    }
    return fmt::format("{}", fmt::join(lines, "; "));
  }

  /// The rank's next step. Requires: it is through with the one before.
  void Begin(Rank& rank) {
    rank.task.assign(rank.list->instructions.size(), kNoTask);
    rank.waits.BeginStep();
    rank.own.clear();
    rank.at = 0;
    const auto step = static_cast<size_t>(rank.step);
    if (step >= steps_.gates.size()) return;
    std::vector<int32_t> after = {steps_.gates[step]};
    if (rank.chain != kNoTask) after.push_back(rank.chain);
    rank.chain = graph_.Add(Seconds(0), after);
  }

  static const Instruction& At(const Rank& rank, int32_t k) { return rank.list->instructions[static_cast<size_t>(k)]; }

  /// False where one of these has no task yet.
  static bool AllThere(const Rank& rank, const std::vector<int32_t>& instructions) {
    return std::ranges::all_of(instructions, [&](int32_t k) { return rank.task[static_cast<size_t>(k)] != kNoTask; });
  }

  void AddOwn(Rank& rank, const TaskCost& cost, const std::vector<int32_t>& waits) {
    OwnTask own;
    std::vector<int32_t> after;
    if (rank.chain != kNoTask) after.push_back(rank.chain);
    for (const int32_t k : waits) {
      const int32_t task = rank.task[static_cast<size_t>(k)];
      after.push_back(task);
      if (!Communicates(At(rank, k).action)) continue;
      own.waits.emplace_back(task, program_.communicators[static_cast<size_t>(At(rank, k).communicator)].kind);
    }
    own.task = rank.chain = Add(cost, after);
    if (rank.step == steps_.steps - 1) rank.own.push_back(std::move(own));
  }

  int32_t Add(const TaskCost& cost, const std::vector<int32_t>& after) {
    const int32_t task = graph_.Add(cost.duration, after);
    if (cost.use.empty()) return task;
    uses_.resize(static_cast<size_t>(task));
    uses_.push_back(cost.use);
    return task;
  }

  /// As far as it goes.
  bool Advance(Rank& rank) {
    bool moved = false;
    while (rank.step < steps_.steps && (rank.at < rank.list->instructions.size() ? One(rank) : EndStep(rank))) moved = true;
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
      AddOwn(rank, costs_.compute(rank.number, k), waits);
      rank.task[rank.at] = rank.chain;
    } else {
      if (!waits.empty()) AddOwn(rank, {}, waits);
      Enqueue(rank, k);
    }
    rank.waits.Pass(k);
    ++rank.at;
    return true;
  }

  void Enqueue(Rank& rank, int32_t k) {
    const Instruction& i = At(rank, k);
    Waiting waiting{.rank = &rank, .instruction = k, .after = {}, .needs = rank.waits.Before(k)};
    if (rank.chain != kNoTask) waiting.after.push_back(rank.chain);
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
      std::vector<int32_t> after = {};
      if (group.last != kNoTask) after.push_back(group.last);
      GroupCall call{.communicator = i.communicator, .members = {}};
      for (const std::deque<Waiting>& queue : group.waiting) {
        const Waiting& front = queue.front();
        const Instruction& own = At(*front.rank, front.instruction);
        call.members.emplace_back(front.rank->number, &own);
        if (own.action != StepAction::kReceive) AddAfter(front, &after);
      }
      group.last = Add(costs_.communicate(call), after);
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
    if (group.last_received != kNoTask) after.push_back(group.last_received);
    AddAfter(waiting, &after);
    return group.last_received = graph_.Add(Seconds(0), after);
  }

  bool EndStep(Rank& rank) {
    std::vector<int32_t> all;
    for (size_t k = 0; k < rank.task.size(); ++k) {
      const Instruction& i = rank.list->instructions[k];
      if (i.every != 1 || !Communicates(i.action)) continue;
      if (rank.task[k] == kNoTask) return false;
      all.push_back(static_cast<int32_t>(k));
    }
    AddOwn(rank, {}, all);
    rank.ends.push_back(rank.chain);
    if (++rank.step < steps_.steps) Begin(rank);
    return true;
  }

  const StepProgram& program_;
  const ProgramCosts& costs_;
  const ProgramSteps& steps_;
  TaskGraph& graph_;
  std::vector<PortUse>& uses_;  // by task
  std::deque<Rank> ranks_;
  std::vector<std::vector<Group>> groups_;  // by communicator
};

}  // namespace

Result<std::vector<RankTasks>> AddProgram(const StepProgram& program, const ProgramCosts& costs, const ProgramSteps& steps,
                                          TaskGraph* graph, std::vector<PortUse>* uses) {
  int64_t tasks = 0;
  for (const RankPlace& rank : program.ranks) {
    tasks += steps.steps * std::ssize(program.classes[static_cast<size_t>(rank.rank_class)].instructions);
  }
  if (tasks > kMostProgramTasks) {
    return Fail(Code::kInvalidArgument, fmt::format("program: {} instructions of all ranks in {} steps, expected at most {}", tasks,
                                                    steps.steps, kMostProgramTasks));
  }
  return Builder(program, costs, steps, graph, uses).Build();
}

}  // namespace weft::planner::tasks

#include "planner/collectives/testing/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <utility>
#include <vector>

namespace weft::planner::inline collectives {
namespace {

/// One slice of a local step, or of a send together with its receive.
struct Task {
  int32_t from = 0, to = 0;   // of a transfer; a local step has both equal
  int32_t waits = 0;          // needs that have not ended, and transfers of the pair that must begin first
  double ready = 0;           // s, when the last of them was met
  int32_t follower = -1;      // next transfer of the pair
  std::vector<int32_t> dependents;
  bool transfer() const { return from != to; }
};

class Replay {
 public:
  Replay(const Schedule& schedule, const CommunicatorShape& shape, Bytes bytes, int32_t slices)
      : schedule_(schedule), shape_(shape), slices_(slices),
        slice_bytes_(static_cast<double>(bytes.count()) / schedule.chunk_count / slices),
        ports_(static_cast<size_t>(schedule.rank_count()) * 4, 0) {
    NumberTasks();
    for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) AddNeeds(rank);
    OrderPairs();
  }

  double Run() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i].waits == 0) waiting_.insert({0.0, static_cast<int32_t>(i)});
    }
    double now = 0;
    for (;;) {
      StartWhatCan(now);
      if (events_.empty()) break;
      now = events_.top().first;
      while (!events_.empty() && events_.top().first <= now) {
        const int32_t task = events_.top().second;
        events_.pop();
        if (task >= 0) End(task, now);
      }
    }
    return now;
  }

  bool Complete() const { return ended_ == tasks_.size(); }

 private:
  using Pair = std::pair<int32_t, int32_t>;

  size_t TaskOf(int32_t rank, size_t step, int32_t slice) const {
    return static_cast<size_t>(first_task_[static_cast<size_t>(rank)][step] + slice);
  }

  /// A receive shares the tasks of its send.
  void NumberTasks() {
    first_task_.resize(static_cast<size_t>(schedule_.rank_count()));
    for (int32_t rank = 0; rank < schedule_.rank_count(); ++rank) {
      const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
      first_task_[static_cast<size_t>(rank)].assign(steps.size(), -1);
      for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind == StepKind::kRecv) continue;
        const int32_t to = steps[i].kind == StepKind::kSend ? steps[i].peer.value() : rank;
        first_task_[static_cast<size_t>(rank)][i] = static_cast<int32_t>(tasks_.size());
        if (to != rank) sends_[{rank, to}].push_back(static_cast<int32_t>(tasks_.size()));
        for (int32_t s = 0; s < slices_; ++s) tasks_.push_back({.from = rank, .to = to});
      }
    }
    std::map<Pair, size_t> received;
    for (int32_t rank = 0; rank < schedule_.rank_count(); ++rank) {
      const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
      for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].kind != StepKind::kRecv) continue;
        const Pair pair{steps[i].peer.value(), rank};
        first_task_[static_cast<size_t>(rank)][i] = sends_[pair][received[pair]++];
      }
    }
  }

  void AddNeeds(int32_t rank) {
    const auto& steps = schedule_.ranks[static_cast<size_t>(rank)];
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const StepId need : steps[i].needs) {
        for (int32_t s = 0; s < slices_; ++s) {
          tasks_[TaskOf(rank, need.index(), s)].dependents.push_back(static_cast<int32_t>(TaskOf(rank, i, s)));
          ++tasks_[TaskOf(rank, i, s)].waits;
        }
      }
    }
  }

  void OrderPairs() {
    for (const auto& [pair, sends] : sends_) {
      int32_t last = -1;
      for (const int32_t first : sends) {
        for (int32_t s = 0; s < slices_; ++s) {
          if (last >= 0) {
            tasks_[static_cast<size_t>(last)].follower = first + s;
            ++tasks_[static_cast<size_t>(first + s)].waits;
          }
          last = first + s;
        }
      }
    }
  }

  /// Until when a port is busy, by rank, level and direction.
  double& Port(int32_t rank, bool outer, bool in) {
    return ports_[static_cast<size_t>(rank) * 4 + (outer ? 2 : 0) + (in ? 1 : 0)];
  }

  void StartWhatCan(double now) {
    for (bool progress = true; progress;) {
      progress = false;
      for (auto next = waiting_.begin(); next != waiting_.end();) {
        const int32_t index = next->second;
        if (!Start(index, now)) {
          ++next;
          continue;
        }
        next = waiting_.erase(next);
        progress = true;  // what it made possible may stand before it
      }
    }
  }

  bool Start(int32_t index, double now) {
    const Task& task = tasks_[static_cast<size_t>(index)];
    if (!task.transfer()) {
      End(index, now);
      return true;
    }
    const bool outer = !shape_.same_group(task.from, task.to);
    double& out = Port(task.from, outer, false);
    double& in = Port(task.to, outer, true);
    if (out > now || in > now) return false;
    const LinkCost& link = outer ? shape_.outer : shape_.inner;
    const double free = now + slice_bytes_ / link.rate.bytes_per_second();
    out = in = free;
    events_.push({free, -1});
    events_.push({free + link.latency.count(), index});
    if (task.follower >= 0) Met(task.follower, now);
    return true;
  }

  void Met(int32_t index, double now) {
    Task& task = tasks_[static_cast<size_t>(index)];
    task.ready = std::max(task.ready, now);
    if (--task.waits == 0) waiting_.insert({task.ready, index});
  }

  void End(int32_t index, double now) {
    ++ended_;
    for (const int32_t dependent : tasks_[static_cast<size_t>(index)].dependents) Met(dependent, now);
  }

  using Event = std::pair<double, int32_t>;  // time; task that ends, or -1 where only a port is free again

  const Schedule& schedule_;
  const CommunicatorShape& shape_;
  int32_t slices_;
  double slice_bytes_;
  std::vector<double> ports_;
  std::vector<Task> tasks_;
  std::vector<std::vector<int32_t>> first_task_;  // [rank][step]
  std::map<Pair, std::vector<int32_t>> sends_;
  std::set<std::pair<double, int32_t>> waiting_;  // all needs met, by when they were
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  size_t ended_ = 0;
};

}  // namespace

Result<Seconds> ReplayTime(const Schedule& schedule, const CommunicatorShape& shape, Bytes bytes, int32_t slices) {
  WEFT_RETURN_IF_ERROR(ValidateSchedule(schedule));
  if (shape.ranks != schedule.rank_count() || slices < 1) {
    return Fail(Code::kInvalidArgument,
                fmt::format("replay of {}: {} ranks on a shape of {}, {} slices, expected equal ranks and at least 1 slice",
                            schedule.algorithm, schedule.rank_count(), shape.ranks, slices));
  }
  Replay replay(schedule, shape, bytes, slices);
  const double end = replay.Run();
  if (!replay.Complete()) {
    return Fail(Code::kInternal, fmt::format("replay of {}: some steps never end", schedule.algorithm));
  }
  return Seconds(end);
}

}  // namespace weft::planner::collectives

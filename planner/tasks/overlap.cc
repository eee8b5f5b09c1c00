#include "planner/tasks/overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::planner {
namespace {

constexpr int32_t kMostStreams = 64;

Status Check(std::span<const StreamTask> tasks, OverlapCost cost) {
  if (!(cost.compute >= 0) || !(cost.communication >= 0) || !std::isfinite(cost.compute + cost.communication)) {
    return Fail(Code::kInvalidArgument, fmt::format("overlap: slow-downs {} and {}, expected finite and 0 or more",
                                                    cost.compute, cost.communication));
  }
  for (size_t k = 0; k < tasks.size(); ++k) {
    const StreamTask& task = tasks[k];
    if (!(task.duration.count() >= 0) || !std::isfinite(task.duration.count())) {
      return Fail(Code::kInvalidArgument, fmt::format("overlap: task {} takes {} s, expected a finite time of 0 or more",
                                                      k, task.duration.count()));
    }
    if (task.stream < 0 || task.stream >= kMostStreams) {
      return Fail(Code::kInvalidArgument,
                  fmt::format("overlap: task {} on stream {}, expected 0 to {}", k, task.stream, kMostStreams - 1));
    }
    for (const int32_t before : task.after) {
      if (before >= static_cast<int32_t>(k) || before < -1) {
        return Fail(Code::kInvalidArgument, fmt::format("overlap: task {} after task {}, expected an earlier one", k, before));
      }
    }
  }
  return Ok();
}

/// Streams that run side by side: from event to event, all running tasks advance at the speed of the moment.
class Streams {
 public:
  Streams(std::span<const StreamTask> tasks, OverlapCost cost) : tasks_(tasks), cost_(cost) {
    for (size_t k = 0; k < tasks.size(); ++k) {
      const auto stream = static_cast<size_t>(tasks[k].stream);
      if (stream >= queues_.size()) queues_.resize(stream + 1);
      queues_[stream].tasks.push_back(k);
    }
    time_.start.assign(tasks.size(), Seconds(0));
    time_.end.assign(tasks.size(), Seconds(kNotYet));
  }

  OverlapTime Run() {
    while (StartWhatCan()) Advance();
    for (size_t k = 0; k < tasks_.size(); ++k) {
      (tasks_[k].stream == 0 ? time_.compute : time_.communication) += tasks_[k].duration;
    }
    time_.makespan = Seconds(now_);
    time_.exposed = std::max(Seconds(0), time_.makespan - time_.compute);
    return std::move(time_);
  }

 private:
  static constexpr double kNotYet = std::numeric_limits<double>::infinity();

  struct Queue {
    std::vector<size_t> tasks;
    size_t next = 0;
    bool running = false;
    double left = 0;
  };

  bool Over(int32_t task) const { return task < 0 || time_.end[static_cast<size_t>(task)].count() <= now_; }

  /// Whether anything runs then. Tasks of no length are over at once, and may let others start.
  bool StartWhatCan() {
    bool any = false;
    for (bool again = true; again;) {
      again = any = false;
      for (Queue& queue : queues_) {
        if (!queue.running && queue.next < queue.tasks.size()) {
          const size_t task = queue.tasks[queue.next];
          if (!Over(tasks_[task].after[0]) || !Over(tasks_[task].after[1])) continue;
          time_.start[task] = Seconds(now_);
          queue.left = tasks_[task].duration.count();
          queue.running = true;
          if (queue.left == 0) Finish(queue), again = true;
        }
        any = any || queue.running;
      }
    }
    return any;
  }

  void Finish(Queue& queue) {
    time_.end[queue.tasks[queue.next++]] = Seconds(now_);
    queue.running = false;
  }

  void Advance() {
    const bool computes = queues_[0].running;
    const bool communicates =
        std::any_of(queues_.begin() + 1, queues_.end(), [](const Queue& queue) { return queue.running; });
    const double slow_compute = communicates ? 1 + cost_.compute : 1;
    const double slow_communication = computes ? 1 + cost_.communication : 1;
    const auto slow = [&](const Queue& queue) { return &queue == queues_.data() ? slow_compute : slow_communication; };
    double step = kNotYet;
    for (const Queue& queue : queues_) {
      if (queue.running) step = std::min(step, queue.left * slow(queue));
    }
    now_ += step;
    for (Queue& queue : queues_) {
      if (!queue.running) continue;
      const double wall = queue.left * slow(queue);
      // Equal ends are one event; what is left of a rounding is nothing.
      if (wall <= step * (1 + 1e-12)) {
        Finish(queue);
      } else {
        queue.left = (wall - step) / slow(queue);
      }
    }
  }

  std::span<const StreamTask> tasks_;
  OverlapCost cost_;
  std::vector<Queue> queues_ = std::vector<Queue>(1);
  OverlapTime time_;
  double now_ = 0;
};

}  // namespace

Result<OverlapTime> RunStreams(std::span<const StreamTask> tasks, OverlapCost cost) {
  WEFT_RETURN_IF_ERROR(Check(tasks, cost));
  return Streams(tasks, cost).Run();
}

Result<OverlapTime> RunShardedUnits(std::span<const ShardedUnit> units, int64_t prefetch, OverlapCost cost) {
  if (prefetch < 0) {
    return Fail(Code::kInvalidArgument, fmt::format("overlap: prefetch of {} units, expected 0 or more", prefetch));
  }
  // Unit u: gather 3u, compute 3u + 1, reduction 3u + 2. A gather waits for memory: for unit u - 1 - prefetch to be over.
  std::vector<StreamTask> tasks;
  tasks.reserve(3 * units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    const int64_t freed = static_cast<int64_t>(u) - 1 - prefetch;
    const auto at = static_cast<int32_t>(3 * u);
    tasks.push_back({.stream = 1, .duration = units[u].gather,
                     .after = {freed >= 0 ? static_cast<int32_t>(3 * freed + 1) : -1, -1}});
    tasks.push_back({.stream = 0, .duration = units[u].compute, .after = {at, -1}});
    tasks.push_back({.stream = 2, .duration = units[u].reduce, .after = {at + 1, -1}});
  }
  return RunStreams(tasks, cost);
}

Seconds ExposedShardedUnits(const ShardedUnit& unit, int64_t n) {
  if (n <= 0) return Seconds(0);
  const double more = static_cast<double>(n - 1);
  const Seconds gathered = unit.gather + more * std::max(Seconds(0), unit.gather - unit.compute);
  const Seconds step = std::max(unit.gather, unit.compute);
  return gathered + unit.reduce + more * std::max(Seconds(0), unit.reduce - step);
}

Seconds PiecewiseTime(Seconds transfer, Seconds compute, int64_t pieces, Seconds per_piece) {
  const double k = static_cast<double>(std::max<int64_t>(1, pieces));
  const Seconds c = transfer / k, g = compute / k + per_piece;
  return c + (k - 1) * std::max(c, g) + g;
}

int64_t BestPieces(Seconds transfer, Seconds compute, int64_t most, Seconds per_piece) {
  // Where the product is longer: T/k + C + k·per_piece; where the transfer is: T + C/k + per_piece. The time is the
  // larger of the two (subtract one from the other), both are convex in k, so their maximum is.
  int64_t low = 1, high = std::max<int64_t>(1, most);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (PiecewiseTime(transfer, compute, middle + 1, per_piece) < PiecewiseTime(transfer, compute, middle, per_piece)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace weft::planner

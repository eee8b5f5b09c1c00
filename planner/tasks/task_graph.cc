#include "planner/tasks/task_graph.h"

#include <algorithm>

#include "common/check.h"

namespace weft::planner::inline tasks {

int32_t TaskGraph::Add(Seconds duration, std::span<const int32_t> after) {
  WEFT_CHECK(duration.count() >= 0, "a task takes no negative time");
  for (const int32_t task : after) {
    WEFT_CHECK(task >= 0 && task < size(), "a task may wait only for tasks that were added before");
    after_.push_back(task);
  }
  duration_.push_back(duration);
  first_after_.push_back(after_.size());
  return size() - 1;
}

std::span<const int32_t> TaskGraph::after(int32_t task) const {
  const size_t first = first_after_[static_cast<size_t>(task)], last = first_after_[static_cast<size_t>(task) + 1];
  return std::span(after_).subspan(first, last - first);
}

std::vector<TaskWindow> Windows(const TaskGraph& graph, Seconds deadline) {
  std::vector<TaskWindow> windows(static_cast<size_t>(graph.size()));
  Seconds end = deadline;
  for (int32_t task = 0; task < graph.size(); ++task) {
    TaskWindow& window = windows[static_cast<size_t>(task)];
    for (const int32_t before : graph.after(task)) {
      window.earliest_start = std::max(window.earliest_start, windows[static_cast<size_t>(before)].earliest_end);
    }
    window.earliest_end = window.earliest_start + graph.duration(task);
    end = std::max(end, window.earliest_end);
  }
  for (TaskWindow& window : windows) window.latest_end = end;
  for (int32_t task = graph.size() - 1; task >= 0; --task) {
    TaskWindow& window = windows[static_cast<size_t>(task)];
    window.latest_start = window.latest_end - graph.duration(task);
    for (const int32_t before : graph.after(task)) {
      Seconds& latest = windows[static_cast<size_t>(before)].latest_end;
      latest = std::min(latest, window.latest_start);
    }
  }
  return windows;
}

}  // namespace weft::planner::tasks

// When the tasks of a graph run if some of them share ports: each task as early as what it waits for allows, and slower while others
// want the same port. Communications of one job that meet at a rank's NIC are such tasks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner::inline tasks {

/// The ports that a task uses alike, and how much of each while nobody is in its way: 0 to 1, as its latencies leave them idle.
struct PortUse {
  std::vector<int32_t> ports;
  double share = 0;
};

struct TaskSpan {
  Seconds begin{0}, end{0};
};

/// [tasks]. Tasks on the same port move at max-min fair rates of it (network/max_min.h), none faster than alone. `use`: by task; tasks
/// beyond its end use none. Without tasks that meet it is Windows()'s earliest. Requires: ports < `ports`, distinct in a task.
/// Complexity: O((tasks + dependencies) log tasks), and for each beginning and end on a port that is full one solution of the rates of
/// those that are tied together by such ports.
std::vector<TaskSpan> RunTasks(const TaskGraph& graph, std::span<const PortUse> use, int32_t ports);

}  // namespace weft::planner::tasks

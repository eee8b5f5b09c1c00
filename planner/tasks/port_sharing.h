// When the tasks of a graph run if some of them share ports: each task as early as what it waits for allows, and slower while others
// want the same port. Communications of one job that meet at a rank's NIC are such tasks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/units.h"
#include "planner/tasks/task_graph.h"

namespace weft::planner::inline tasks {

/// A port that a task uses, and how much of it while nobody is in its way: more than 0, at most 1, as latencies leave it idle, or as its
/// other ports are the slower ones. `flow`: of this what one of its flows uses there; 0: all of it, as the task is one flow.
struct PortShare {
  int32_t port = 0;
  double share = 0;
  double flow = 0;
};
using PortUse = std::vector<PortShare>;

struct TaskSpan {
  Seconds begin{0}, end{0};
};

/// [tasks]. A task that is slowed down uses less of all its ports alike. Rates are max-min fair by flow, as a fabric's are: a task with three
/// flows on a port gets three times what a task with one gets. A task's flows count alike, at the most that one of them uses of any port.
/// None is faster than alone. `use`: by task; tasks beyond its end use none. Without
/// tasks that meet it is Windows()'s earliest. Source: progressive filling, as network/max_min.h, here with a load for each port.
/// Requires: ports < `ports`, distinct in a task.
/// Complexity: O((tasks + dependencies) log tasks), and for each beginning and end on a port that is full one solution of the rates of
/// those that are tied together by such ports, of their number squared at most.
std::vector<TaskSpan> RunTasks(const TaskGraph& graph, std::span<const PortUse> use, int32_t ports);

}  // namespace weft::planner::tasks

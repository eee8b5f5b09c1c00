// Where the ranks of a communicator are, and what a graph of links gives each: schedule_cost.h makes a network of it.
#pragma once

#include <cstdint>

#include "common/units.h"

namespace weft::planner::inline collectives {

struct LinkCost {
  Seconds latency{0};
  BitsPerSecond rate;
};

/// Where the ranks of a communicator are: groups of `group` consecutive ranks (0: one group of all), for instance the GPUs
/// of a host. `inner` is what a rank has inside its group, `outer` its share of the way out.
struct CommunicatorShape {
  int32_t ranks = 0;
  int32_t group = 0;
  LinkCost inner;
  LinkCost outer;

  int32_t group_size() const { return group <= 0 || group > ranks ? ranks : group; }
  int32_t groups() const { return (ranks + group_size() - 1) / group_size(); }
  bool same_group(int32_t a, int32_t b) const { return a / group_size() == b / group_size(); }
};

}  // namespace weft::planner::collectives

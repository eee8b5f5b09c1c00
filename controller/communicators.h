// Which group of its job's plan each communicator of a running job is, by the ranks at the ends of its flows; and with that what its flows
// are planned to carry, and how long they may wait.
//
// The plan's list of operations (planner/tasks/operations.h) says of each group how many ranks it has and how far apart they are. A
// communicator is the smallest planned group that has all ranks that its flows name. Which class a flow gets within what its job has
// follows from slack: what a pass waits for goes before what hides behind computation.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "controller/flow_table.h"
#include "planner/planner.h"
#include "proto/controller.pb.h"

namespace weft::controller {

/// One communicator of a job, as it is planned.
struct KnownCommunicator {
  planner::CommunicatorKind kind = planner::CommunicatorKind::kWorld;
  planner::Group group;            ///< ranks, and their distance
  int64_t first = 0;               ///< its least rank
  bool slack = false;              ///< all that it carries hides behind computation
  double planned_bytes = 0;        ///< that leave hosts per iteration, of all its ranks; 0: on one host
  double measured_bytes = 0;       ///< of its flows' send sides per iteration; 0: not known of all yet
  int64_t flows = 0;               ///< send sides
};

/// By NCCL's commId. Flows without one, or whose ranks are not known, and communicators that no planned group has are left out.
/// `rank_hosts`: the host of each rank. Requires: a list that OperationListFromProto() accepted, flows of one job.
/// Complexity: O(flows + communicators · (operations · ranks of the group)).
std::map<uint64_t, KnownCommunicator> MatchCommunicators(const planner::OperationList& list, std::span<const std::string> rank_hosts,
                                                         std::span<const SendFlow* const> flows);

/// How much later than its job's class a flow is served: one class for a communicator with slack, where the job has others without; the
/// other way round one class earlier for those without. `below`, `above`: whether that neighbouring class is there and nobody else's.
int32_t ClassStep(const std::map<uint64_t, KnownCommunicator>& known, uint64_t comm, bool below, bool above);

}  // namespace weft::controller

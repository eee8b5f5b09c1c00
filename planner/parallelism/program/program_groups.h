// Which ranks talk to which: the communicators of a program. Internal to this folder.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "planner/parallelism/strategy.h"
#include "planner/tasks/step_program.h"

namespace weft::planner::inline parallelism {

/// Indices into StepProgram::communicators; -1 where a group would be one rank.
struct ProgramGroups {
  int32_t tensor = -1, context = -1, data = -1, embedding = -1, world = -1;
  /// On a grid, tensor ranks that differ in one place alone: column or j, row or i, layer or l (tasks/rank_grid.h); and those that
  /// have the same columns of the stream.
  std::array<int32_t, 3> along = {-1, -1, -1};
  int32_t same_columns = -1;
  int32_t shard = -1;    ///< the replicas that share one copy of the state: all (data), or those of a shard group
  int32_t across = -1;   ///< the same place of all shard groups; -1: there is one group
  int32_t replica = -1;  ///< all ranks of one, where replicas differ
  int32_t expert = -1, expert_tensor = -1, expert_data = -1;  ///< ranks that share experts, the matrices of each, or have the same
  std::map<std::pair<int64_t, int64_t>, int32_t> messages;  ///< by sending and receiving stage

  std::vector<ProgramCommunicator> communicators;
  std::vector<RankPlace> ranks;

  /// Its index.
  int32_t Add(ProgramCommunicator communicator) {
    communicators.push_back(std::move(communicator));
    return static_cast<int32_t>(communicators.size() - 1);
  }
};

/// What of a model decides who talks to whom.
struct GroupTraits {
  bool tied_apart = false;  ///< embedding and head have one table on two stages
  bool moe = false;         ///< it has experts
  bool spatial = false;     ///< tensor ranks share samples, and all have the same parameters
};

/// Requires: a legal strategy. `sums`: how gradients are summed, other than those of experts.
ProgramGroups GroupsOf(const Strategy& strategy, const GroupTraits& traits, const AlgorithmSpec& sums);

/// The stages that a stage sends to, in the way of a micro-batch and back.
struct Boundary {
  int64_t from = 0, to = 0;
};
std::vector<Boundary> BoundariesOf(const Strategy& strategy);

}  // namespace weft::planner::parallelism

// Carries out a planner::StateChange: parameters and moments go from the memory of one program's ranks into that of the next
// one's, over the plugin, in the rounds that the planner has written. No disk and no restart. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/communicator.h"
#include "collectives/net_plugin.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"
#include "planner/tasks/state_change.h"
#include "runtime/state/unit_state.h"

namespace weft::runtime {

/// Of all ranks, in all parts of the state.
struct MovedBytes {
  Bytes planned, sent;
};

/// One thread. Its connections stay open for the next change.
class StateMover {
 public:
  /// For one rank: no plugin and no bootstrap. Requires: both outlive it.
  StateMover(collectives::NetPlugin* plugin, collectives::Bootstrap* bootstrap, const collectives::CommunicatorOptions& options)
      : plugin_(plugin), bootstrap_(bootstrap), options_(options) {}

  /// Collective over all ranks of the run, each with the same change. `from` is what this rank has under the program that ends,
  /// `to` what it has under the next; either has the program's type, and no units, where the rank has no place. Errors:
  /// kInvalidArgument for programs of different types; those of the communicator.
  [[nodiscard]] Result<MovedBytes> Move(const planner::StateChange& change, int rank, const RankState& from, const RankState& to);

 private:
  /// A box that is exchanged whole, and in which part of the state.
  struct Piece {
    planner::StateMove move;
    size_t part = 0;
  };

  Status Connect(const planner::StateChange& change);
  Status Exchange(const std::vector<Piece>& pieces, const planner::StateRound& pair, bool back, int rank, const RankState& from,
                  const RankState& to);
  static std::vector<Piece> PiecesOf(const planner::StateChange& change, int32_t sender, int32_t receiver);

  collectives::NetPlugin* plugin_;
  collectives::Bootstrap* bootstrap_;
  collectives::CommunicatorOptions options_;
  std::vector<std::byte> buffer_;  // registered with the plugin: outlives the communicator
  std::unique_ptr<collectives::Communicator> communicator_;
};

}  // namespace weft::runtime

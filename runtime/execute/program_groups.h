// The communicators of a program on this rank, and what went over them. No torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/bootstrap.h"
#include "collectives/communicator.h"
#include "collectives/net_plugin.h"
#include "common/result.h"
#include "common/units.h"
#include "planner/planner.h"

namespace weft::runtime {

/// What one rank has handed to the plugin.
struct SentBytes {
  planner::CommunicatorKind kind = planner::CommunicatorKind::kWorld;
  planner::StepAction action = planner::StepAction::kAllReduce;  ///< as in planner::ProgramVolume
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// A communication, on plain memory.
struct Transfer {
  planner::StepAction action = planner::StepAction::kAllReduce;
  collectives::DataType type = collectives::DataType::kFloat32;
  int64_t elements = 0;         ///< of the full tensor
  int32_t root = -1;            ///< of kBroadcast, whose input is there, and kReduce, whose output is: a place in the group
  const void* input = nullptr;  ///< null where nothing is read
  void* output = nullptr;
  planner::WireType wire = planner::WireType::kWhole;  ///< of kAllReduce and kReduceScatter
  void* remainder = nullptr;  ///< `elements` that the last narrow transfer left out, added to this one; null: it is forgotten
  bool lasting = false;  ///< the memory stays for the whole run, so that the plugin may keep it registered
};

/// Connected when made; afterwards each communicator may be used by one thread of its own.
class ProgramGroups {
 public:
  /// Opens the groups of all ranks, one communicator after another. Collective over all ranks. For one rank: no plugin and no
  /// bootstrap, and nothing is opened. `rank` is the program's; -1: this one has no place in it and joins in. `rank_of_place`: the
  /// bootstrap's ranks by the program's; empty: the same. Requires: a checked program; plugin and bootstrap outlive it.
  /// Errors: those of Communicator::Create and ConnectAll.
  [[nodiscard]] static Result<std::unique_ptr<ProgramGroups>> Connect(const planner::StepProgram& program, int rank,
                                                                      collectives::NetPlugin* plugin,
                                                                      collectives::Bootstrap* bootstrap,
                                                                      const collectives::CommunicatorOptions& options,
                                                                      const std::vector<int>& rank_of_place = {});

  /// One rank by itself: nothing is connected, and what would come is made up: from what the rank gives itself, of messages a pattern.
  /// Computations have their shapes and take their time.
  [[nodiscard]] static std::unique_ptr<ProgramGroups> Apart(const planner::StepProgram& program, int rank);

  /// Runs the transfer on a communicator of this rank. Blocks. Errors: the communicator's.
  [[nodiscard]] Status Run(int32_t communicator, const Transfer& transfer);

  /// This rank's place in its group; {-1, -1} where it is in none.
  planner::GroupPlace PlaceOf(int32_t communicator) const { return places_[static_cast<size_t>(communicator)]; }
  int64_t SizeOf(int32_t communicator) const;
  planner::CommunicatorKind KindOf(int32_t communicator) const { return groups_[static_cast<size_t>(communicator)].kind; }
  size_t count() const { return groups_.size(); }

  /// Since the beginning. Requires: no transfer under way.
  std::vector<SentBytes> Sent() const;

 private:
  ProgramGroups() = default;

  /// What narrow transfers of a communicator use, kept from one to the next.
  struct NarrowMemory {
    std::vector<std::byte> sent, received;
  };
  struct Group {
    std::unique_ptr<collectives::Bootstrap> bootstrap;
    NarrowMemory narrow;             ///< outlives the communicator, like
    std::vector<std::byte> staging;  ///< short-lived memory is copied here, and registered once; outlives the communicator
    std::unique_ptr<collectives::Communicator> communicator;
    planner::CommunicatorKind kind = planner::CommunicatorKind::kWorld;
    planner::AlgorithmSpec sums;
    int64_t size = 0;
    std::map<std::pair<planner::StepAction, int32_t>, planner::Schedule> schedules;  // by action and root
    std::map<planner::StepAction, SentBytes> sent;
  };

  template <typename T>
  Status RunNarrow(Group& group, const Transfer& transfer, planner::GroupPlace place);
  Status Staged(Group& group, const planner::Schedule& schedule, const Transfer& transfer, planner::GroupPlace place);

  std::vector<Group> groups_;
  std::vector<planner::GroupPlace> places_;
  bool apart_ = false;
};

}  // namespace weft::runtime

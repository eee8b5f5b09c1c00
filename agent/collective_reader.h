// How long the collectives of a process take, from the ring of finished operations in its segment (netplugin/abi/observations.h),
// for the controller, which compares the ranks of all hosts: a rank that comes late to a collective is the one for which
// it was short, and so agents report the ranks for which it was long. Read as untrusted as the rest of the segment.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "netplugin/abi/observations.h"
#include "proto/telemetry.pb.h"

namespace weft::agent {

/// Name of an operation as people read it: "allreduce"; "point-to-point". Requires: operation < abi::kOperations.
const char* OperationName(uint32_t operation);

/// Not thread-safe. One per attached process.
class CollectiveReader {
 public:
  /// A collective is slow when it took so much longer than the same one usually does, and twice as long.
  static constexpr double kLeastDelayS = 0.25;
  /// Others of its kind in the ring from which "usually" follows.
  static constexpr size_t kLeastKnown = 4;
  /// Slow ones that one call of AppendSlow reports.
  static constexpr int kMostSlow = 64;

  /// `job_rank`: of the process, -1 if unknown. `observations` may be nullptr (a plugin without them) and outlives the reader.
  CollectiveReader(const abi::Observations* observations, std::string job, int job_rank)
      : observations_(observations), job_(std::move(job)), job_rank_(job_rank) {}

  /// The slow collectives that finished since the last call, oldest first. What the ring has lost in between is not told,
  /// nor what it held when a communicator was first seen. Complexity: O(ring) where something finished, else O(1), per slot.
  void AppendSlow(v1::HostSample* sample);

  /// This process's rank in every communicator in which a kind of collective has been timed kLeastKnown times, with its usual
  /// time in steps of two, so that the list seldom changes. Complexity: as AppendSlow.
  void AppendRanks(v1::HostSample* sample);

 private:
  struct Finished {
    uint32_t operation = 0;
    uint64_t sequence = 0, start_ns = 0, end_ns = 0, bytes = 0, receive_wait_ns = 0;

    double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
  };
  struct Slot {
    bool known = false;
    uint32_t generation = 0;
    uint64_t read = 0, ranked = 0;                    ///< entries of the ring that AppendSlow and AppendRanks have seen
    std::array<double, abi::kOperations> usual_s{};   ///< as last told; 0: not yet
  };

  /// What the ring holds whole, oldest first, each with its number.
  static std::vector<std::pair<uint64_t, Finished>> ReadRing(const abi::CommunicatorSlot& slot);
  /// Median of the others of that kind, and of about that size if `bytes` says one; nullopt: too few.
  static std::optional<double> Usual(const std::vector<std::pair<uint64_t, Finished>>& ring, uint64_t except,
                                     uint32_t operation, std::optional<uint64_t> bytes);
  /// The slot at `index` if it is somebody's, with what is remembered of it.
  Slot* Follow(uint32_t index);

  const abi::Observations* observations_;
  const std::string job_;
  const int job_rank_;
  std::array<Slot, abi::kMaxCommunicators> slots_{};
};

}  // namespace weft::agent

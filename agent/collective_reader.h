// Which collectives of a process were out of the ordinary, from the rings of finished operations in its segment
// (netplugin/abi/observations.h), for the controller, which compares the ranks of all hosts. Who came in time to a collective that
// another rank came late to is in it for longer than usual; the late one has let its communicator lie idle for longer than usual
// before it. Both are told, so that nobody is blamed for silence. Read as untrusted as the rest of the segment.
#pragma once

#include <array>
#include <cstdint>
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
  /// A delay is told from so long on; a wait only where it is also as long as what is usual.
  static constexpr double kLeastDelayS = 0.25;
  /// Others of its kind and size in the ring from which "usual" follows.
  static constexpr size_t kLeastKnown = 4;
  /// What one call tells at most, and how often it looks what a late rank waited elsewhere.
  static constexpr int kMostDelays = 64;
  /// Long gaps that are remembered for a communicator, beyond what its ring holds, and for how long.
  static constexpr size_t kLongGaps = 8;
  static constexpr uint64_t kRememberedNs = 60'000'000'000;

  /// `job_rank`: of the process, -1 if unknown. `observations` may be nullptr (a plugin without them) and outlives the reader.
  CollectiveReader(const abi::Observations* observations, std::string job, int job_rank)
      : observations_(observations), job_(std::move(job)), job_rank_(job_rank) {}

  /// The delays of collectives that finished since the last call. What the rings have lost in between is not told, nor what they
  /// held when a communicator was first seen. What a rank waited in other communicators meanwhile does not make it late.
  /// Complexity: O(slots), and with r entries in all rings and k in one O(r · k), at most kMostDelays times, where something finished.
  void AppendDelays(v1::HostSample* sample);

 private:
  struct Finished {
    uint64_t number = 0;  ///< counts entries of the ring
    uint32_t operation = 0;
    uint64_t sequence = 0, start_ns = 0, end_ns = 0, bytes = 0, receive_wait_ns = 0;
    uint64_t idle_ns = 0;     ///< of the communicator before it
    bool idle_known = false;  ///< the one before it is in the ring: nothing was recorded less in between

    double took_s() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
    double idle_s() const { return static_cast<double>(idle_ns) * 1e-9; }
  };
  /// A communicator as it was read.
  struct Ring {
    uint32_t slot = 0, generation = 0;
    uint64_t first_new = 0, end_new = 0;  ///< numbers of the entries that were not judged before
    uint64_t comm = 0;
    int rank = -1, ranks = 0;
    std::string name;
    std::vector<Finished> entries;  ///< in the order in which they began
  };
  struct LongGap {
    uint64_t until_ns = 0;
    double seconds = 0;
  };
  struct Slot {
    bool known = false;
    uint32_t generation = 0;
    uint64_t read = 0;    ///< entries of the ring that were judged
    std::vector<LongGap> long_gaps;  ///< the newest of kLeastDelayS and longer, at most kLongGaps
  };
  /// All of them, if something finished in one; else none.
  std::vector<Ring> ReadRings();
  static std::vector<Finished> ReadEntries(const abi::CommunicatorSlot& slot);
  /// By how much an entry took longer than the median of the others of its kind and size; nullopt: too few are known.
  static std::optional<double> WaitOf(const std::vector<Finished>& entries, const Finished& entry);
  /// By how much the communicator lay idle longer before it than before others of its kind and size. Usual is the third longest of
  /// them, or of the remembered ones: of the buckets of an iteration only the first is idle for long, the ring may hold few
  /// iterations, and a delay or two are not usual yet.
  static std::optional<double> LateOf(const std::vector<Finished>& entries, const std::vector<LongGap>& long_gaps, const Finished& entry);
  /// As LateOf, less what the process waited elsewhere; `looked` counts how often that was asked. The entry's gap is remembered.
  std::optional<double> JudgeLate(const std::vector<Ring>& rings, const Ring& ring, const Finished& entry, int& looked);
  /// What the process waited in other communicators while `comm` lay idle before the entry.
  static double WaitedElsewhere(const std::vector<Ring>& rings, uint64_t comm, const Finished& entry);

  const abi::Observations* observations_;
  const std::string job_;
  const int job_rank_;
  std::array<Slot, abi::kMaxCommunicators> slots_{};
};

}  // namespace weft::agent

// What a process's profiler face and watchdog have to say (netplugin/abi/observations.h): connections that stand still, and
// how far each rank has come in each collective. Read as untrusted as the rest of the segment: identity between two equal
// even generations, enumerations checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "netplugin/abi/observations.h"

namespace weft::agent {

/// A connection that began to stand still, or moves again.
struct StallNews {
  bool begins = false;
  uint64_t flow = 0;
  bool send = false;
  int rank = -1, peer_rank = -1;
  std::string peer;                 ///< address and port
  std::vector<uint16_t> ports;      ///< source ports of its lanes
  uint64_t bytes = 0, requests = 0; ///< in flight
  std::string cause;                ///< "peer does not read", "no acknowledgement", …
  double stalled_s = 0;
  bool given_up = false;
};

/// How far one rank has come with one kind of operation of a communicator.
struct RankProgress {
  uint64_t comm = 0;
  std::string operation;            ///< "allreduce", …
  int rank = -1, ranks = 0;
  uint64_t started = 0, finished = 0;
  uint64_t last_started = 0;        ///< NCCL's number; means something if started > 0
  uint64_t last_started_ns = 0;     ///< CLOCK_MONOTONIC
};

/// Ranks that are in an operation for long, and those of this host that have not come to it. Nobody behind: whoever is,
/// is on another host, or the network holds it.
struct Straggle {
  uint64_t comm = 0;
  std::string operation;
  uint64_t sequence = 0;
  std::vector<int> waiting, behind;
  int ranks = 0;
  double waited_s = 0;              ///< of the rank that came first
};

/// The newest operation of every communicator in which some rank has waited for `least_s`. Complexity: O(n log n).
std::vector<Straggle> FindStraggles(const std::vector<RankProgress>& progress, uint64_t now_ns, double least_s);

/// Not thread-safe. One per attached process.
class ObservationReader {
 public:
  /// `observations` may be nullptr (a plugin without them) and outlives the reader.
  explicit ObservationReader(const abi::Observations* observations) : observations_(observations) {}

  /// What is new since the last call.
  std::vector<StallNews> TakeStalls();
  /// Stalls whose beginning was told and whose end was not.
  int64_t open_stalls() const { return static_cast<int64_t>(told_.size()); }
  /// Appends every open communicator whose rank is known.
  void AppendProgress(std::vector<RankProgress>* progress) const;

 private:
  const abi::Observations* observations_;
  std::map<uint32_t, uint32_t> told_;  // slot to the generation whose beginning was told
};

}  // namespace weft::agent

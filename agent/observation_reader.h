// What a process's profiler face and watchdog have to say (netplugin/abi/observations.h): connections that stand still,
// how far each rank has come in each collective, and whether the plugin's background thread is there to say it. Read as
// untrusted as the rest of the segment: identity between two equal even generations, enumerations checked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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

/// A plugin whose background thread has fallen silent, or is back.
struct SilenceNews {
  bool begins = false;
  bool failed = false;              ///< ended by an error; else it has made no round for kSilentNs
  double silent_s = 0;
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
  static constexpr uint64_t kSilentNs = 10'000'000'000;

  /// Either may be nullptr (a plugin without it); both outlive the reader.
  explicit ObservationReader(const abi::Observations* observations, const abi::BackgroundSlot* background = nullptr)
      : observations_(observations), background_(background) {}

  /// What is new since the last call.
  std::vector<StallNews> TakeStalls();
  /// Stalls whose beginning was told and whose end was not.
  int64_t open_stalls() const { return static_cast<int64_t>(told_.size()); }
  /// Each silence once when it begins and once when it is over; `now_ns` is CLOCK_MONOTONIC.
  std::optional<SilenceNews> TakeSilence(uint64_t now_ns);
  bool silent() const { return silent_; }
  /// Appends every open communicator whose rank is known.
  void AppendProgress(std::vector<RankProgress>* progress) const;

 private:
  const abi::Observations* observations_;
  const abi::BackgroundSlot* background_;
  bool silent_ = false;
  std::map<uint32_t, uint32_t> told_;  // slot to the generation whose beginning was told
};

}  // namespace weft::agent

// Finds connections that have requests in flight and do not move, whatever their transport: reports each once to the log
// and to the agent (abi::StallSlot), says when it moves again, and, if the user asked for it, gives it up. A connection that
// stands still again and again is logged once a minute, with the number of times that were left out.
//
// NCCL itself waits for ever: without this a dead peer is a silent hang. The data path pays two additions per message;
// everything else happens on the background thread. Being held by a closed time window is no stall unless it lasts
// longer than any window may.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "netplugin/background.h"
#include "netplugin/comm.h"
#include "netplugin/telemetry/observer.h"

namespace weft::net {

/// What a flow's counters say at one moment.
struct StallEvidence {
  uint64_t silent_ns = UINT64_MAX;  ///< since the peer's host last acknowledged anything; UINT64_MAX: not known
  uint64_t retransmits = 0;
  uint64_t wire_busy_ns = 0;
  uint32_t usable_lanes = 0;
};

/// Why a flow of that direction stands still, from its counters when it last moved and `now`; `stalled_ns` in between.
abi::StallCause CauseOf(abi::Direction direction, const StallEvidence& before, const StallEvidence& now,
                        uint64_t stalled_ns);
/// For a log line: "the peer does not read".
const char* CauseText(abi::StallCause cause);

class Watchdog final : public BackgroundTask {
 public:
  static constexpr uint64_t kLogEveryNs = 60'000'000'000;

  static constexpr uint64_t kDroppedNs = 2'000'000'000;

  /// Both outlive the watchdog.
  Watchdog(Observer& observer, const StallEnvironment& settings) : observer_(observer), settings_(settings) {}

  /// After Remove() returned `comm` is not looked at any more. Threads: any.
  void Add(Comm* comm);
  void Remove(Comm* comm);

  /// This NCCL (up to 2.27) forgets errors of its progress thread: where the user asked for an abort, a connection that has failed
  /// and is not closed within kDroppedNs ends the process. Threads: any.
  void ExpectDroppedErrors() { errors_are_dropped_.store(true, std::memory_order_relaxed); }

  void Sweep(const Tick& tick) override;

 private:
  struct Watched {
    Comm* comm;
    const abi::FlowSlot* slot;
    uint64_t moved = 0;            // sum of what changes with progress
    uint64_t since_ns = 0;         // of the last progress, or of having nothing to do
    StallEvidence evidence;        // then
    abi::StallSlot* stall = nullptr;
    bool said = false;             // the present standstill, to the agent
    bool logged = false;           // and to the log
    uint64_t next_log_ns = 0;      // a connection has a line a minute at most
    uint64_t unlogged = 0;         // standstills since then
    uint64_t failed_ns = 0;        // when its error was first seen here
  };

  void Look(Watched& watched, uint64_t now);
  void Begin(Watched& watched, uint64_t now);
  /// The line of a beginning, or one more that is left out.
  void LogBegin(Watched& watched, uint64_t now, abi::StallCause cause, const abi::StallSlot& stall);
  void Update(Watched& watched, uint64_t now);
  void Over(Watched& watched, uint64_t now, bool closed);
  void GiveUp(Watched& watched, uint64_t now);
  void AbortIfDropped(Watched& watched, uint64_t now) const;

  Observer& observer_;
  const StallEnvironment& settings_;
  std::atomic<bool> errors_are_dropped_{false};
  std::mutex mutex_;  // guards watched_; never taken on the data path
  std::vector<Watched> watched_;
};

}  // namespace weft::net

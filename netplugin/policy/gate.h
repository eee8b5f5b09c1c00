// The time window of a sending flow: holds the first chunk of a burst back until the window is open, so that bursts of
// jobs that share links interleave. A function of times that are handed in; it sleeps nowhere and asks no clock.
//
//   if (!gate.Opens(NowNs(), last_progress)) return;   // the message stays not done; ask again at the next call
//
// What begins late is not held: a job that runs slower than its period goes on at its own pace until it is so late that
// it counts as early for the next window. Pauses inside an iteration (between buckets, for the peer) are told from the
// pause between iterations by their length: shorter than half of the part of the period in which the window is shut.
#pragma once

#include <cstdint>

#include "netplugin/abi/segment.h"

namespace weft::net {

class Gate {
 public:
  static constexpr uint64_t kBurstGapNs = 2'000'000;

  /// Puts the window of `entry` in force; a period of 0 is none. What is held then goes by the new window, but never
  /// longer than one period in all. Requires: CheckFlowPolicy() passed.
  void Set(const abi::FlowPolicy& entry, uint64_t now);

  bool armed() const { return period_ != 0; }
  bool holding() const { return held_since_ != 0; }

  /// Whether a chunk may leave at `now`. `last_progress`: when the flow last moved bytes. The first call that is refused
  /// begins a hold; it ends at most one period later. Requires: armed().
  bool Opens(uint64_t now, uint64_t last_progress);

  /// The window does not apply at present (its lease is over): what is held is let go.
  void Release(uint64_t now);

  /// Time and number of holds that have ended since the last call; true if there is one.
  bool TakeHeld(uint64_t* ns);

 private:
  uint64_t UntilOpen(uint64_t now) const;

  uint64_t period_ = 0, offset_ = 0, length_ = 0;
  uint64_t passed_ = 0;      // when a burst was last let through: its bytes may not have moved yet
  uint64_t held_since_ = 0;  // 0: nothing is held
  uint64_t held_until_ = 0;
  uint64_t held_ns_ = 0;     // of a hold that has ended
};

}  // namespace weft::net

// What the path gives a lane, seen where its chunks arrive. The sender cannot tell: what is not acknowledged may have
// arrived long ago, as acknowledgements wait in queues of their own, and TCP counts a lane as busy all the while.
//
// Each long chunk says when the kernel was given it, on the sender's clock. Against the least delay that the lane has seen
// (the clocks' difference is in both) that is the time at which the chunk was due here. One that was due before its
// predecessor had come stood in a queue from then on: the time between the two is the wire's, and what came in it is what
// the path gives. Counted from one arrival that was waited for to the next such, for only those times are right: what a
// read finds beside it, or after a pause of the reader, has been there for a while.
#pragma once

#include <cstdint>

#include "netplugin/telemetry.h"

namespace weft::net {

/// Shorter chunks say nothing and cost nothing. Those between two that do count as the later one's bytes, up to
/// kMostUnmetered.
inline constexpr uint32_t kMeteredBytes = 8192;
inline constexpr uint32_t kMostUnmetered = 1 << 20;

/// `now` as chunk headers carry it: units of 1.024 us, modulo 2^32; never 0, which says nothing.
inline uint32_t SentTick(uint64_t now) { return static_cast<uint32_t>(now >> 10) | 1; }

/// One lane's. The receiver's data thread only.
class ArrivalMeter {
 public:
  /// A chunk with SentTick `sent` begins to arrive at `now`; `awaited`: a moment ago nothing was there to be read. `bytes`:
  /// of it on the wire. Adds to the backlog counters of `lane`.
  void Arrived(uint64_t now, uint32_t sent, uint64_t bytes, bool awaited, abi::LaneTelemetry* lane);
  /// Chunks have come that did not say when they were sent: the next one begins anew.
  void Break() { newest_ns_ = 0; }

 private:
  static constexpr uint64_t kForgetNs = 10'000'000'000;  // delays before that may be another path's

  /// How much later than the earliest the chunk has come, in ticks.
  int64_t Late(uint64_t now, uint32_t sent);

  bool begun_ = false;
  uint32_t base_ = 0;                   // the first chunk's delay
  int64_t least_ = 0, least_before_ = 0;  // delays above base_: of this stretch of kForgetNs, and of the one before
  uint64_t stretch_ns_ = 0;             // its begin
  uint32_t sent_ = 0;                   // of the newest chunk
  uint64_t newest_ns_ = 0;              // when the first chunk with that tick came
  uint64_t newest_bytes_ = 0;           // of the chunks with that tick
  uint64_t anchor_ns_ = 0;              // 0: no arrival that was waited for since the wire was last without a chunk
  uint64_t bytes_ = 0;                  // since then
};

}  // namespace weft::net

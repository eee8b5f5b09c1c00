// What the path gives a lane, seen where its chunks arrive. The sender cannot tell: what is not acknowledged may have
// arrived long ago, as acknowledgements wait in queues of their own, and TCP counts a lane as busy all the while.
//
// Each long chunk says when the kernel was given it, on the sender's clock. Against the least delay that the lane has seen
// (the clocks' difference is in both) that is the time at which the chunk was due here. One that was due before an
// earlier one had come stood in a queue from then on: the time between the two is the wire's, and what came in it is what
// the path gives. Counted from one arrival that was waited for to the next such, for only those times are right: what a
// read finds beside it, or after a pause of the reader, has been there for a while.
#pragma once

#include <cstdint>

#include "netplugin/telemetry.h"

namespace weft::net {

/// Shorter chunks say nothing and cost nothing.
inline constexpr uint32_t kMeteredBytes = 8192;

/// `now` as chunk headers carry it: units of 1.024 us, modulo 2^32; never 0, which says nothing.
inline uint32_t SentTick(uint64_t now) { return static_cast<uint32_t>(now >> 10) | 1; }

/// One lane's. The receiver's data thread only.
class ArrivalMeter {
 public:
  ArrivalMeter() = default;
  /// `wire_per_byte`: bytes on the wire per byte of the stream.
  explicit ArrivalMeter(double wire_per_byte) : wire_per_byte_(wire_per_byte) {}

  /// A chunk of `bytes` with SentTick `sent` begins to arrive at `now`; `awaited`: a moment ago nothing was there to be
  /// read. Adds to the backlog counters of `lane`.
  void Arrived(uint64_t now, uint32_t sent, uint64_t bytes, bool awaited, abi::LaneTelemetry* lane);
  /// A chunk that does not say when it was sent.
  void Also(uint64_t bytes) { newest_bytes_ += bytes; }

 private:
  // The least delay rises by so much: the clocks drift, and the lane may have another path now.
  static constexpr double kForget = 1e-4;

  /// How much later than the earliest the chunk has come, in ticks.
  int64_t Late(uint64_t now, uint32_t sent);

  double wire_per_byte_ = 1;
  bool begun_ = false;
  uint32_t base_ = 0;          // the first chunk's delay
  double least_ = 0;           // delay above base_, as of looked_ns_
  uint64_t looked_ns_ = 0;
  uint64_t newest_bytes_ = 0;  // of the newest chunk, and those since that did not say
  uint64_t anchor_ns_ = 0;     // the newest arrival that was waited for; 0: since then one has come that was not due yet
  uint32_t anchor_sent_ = 0;   // its tick
  uint64_t bytes_ = 0;         // from that one on, without newest_bytes_
};

}  // namespace weft::net

// What the path gives a lane, seen where its chunks arrive. The sender cannot tell: what is not acknowledged may have
// arrived long ago, as acknowledgements wait in queues of their own, and TCP counts a lane as busy all the while.
//
// Each long chunk says when the kernel was given it, on the sender's clock. Against the least delay that the lane has seen
// (the clocks' difference is in both) that is the time at which the chunk was due here. One that was due well before an
// earlier one had come stood in a queue from then on: the time between the two is the wire's, and what came in it is what
// the path gives, over any number of chunks as long as that goes on. Counted from one arrival whose time is known to the
// next such: what a read finds beside it, or after a pause of the reader, has been there for a while. Where the reader
// paused for so long that the sender may have had to stop, nothing is known of the path.
//
// Limits: queues of less than kJitterNs are not seen, which on links above some 10 Gbit/s are most of them; a queue that
// stands for minutes is forgotten by kForget; a sender that is held by the receiver's window looks like a slow path.
#pragma once

#include <cstdint>
#include <ctime>

#include "netplugin/telemetry.h"

namespace weft::net {

/// Shorter chunks say nothing and cost nothing.
inline constexpr uint32_t kMeteredBytes = 8192;

/// CLOCK_MONOTONIC_RAW in nanoseconds: nobody slews it, so that two hosts' clocks drift by their crystals only.
inline uint64_t MeterNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

/// Of the times that headers carry: 1.024 us.
inline constexpr int kTickShift = 10;
/// `now` (MeterNs) as chunk headers carry it, modulo 2^32; never 0, which says nothing.
inline uint32_t SentTick(uint64_t now) { return static_cast<uint32_t>(now >> kTickShift) | 1; }

/// One lane's. The receiver's data thread only.
class ArrivalMeter {
 public:
  /// The chunk may have come at any time since long ago.
  static constexpr uint64_t kUnknown = UINT64_MAX;

  ArrivalMeter() = default;
  /// `wire_per_byte`: bytes on the wire per byte of the stream.
  explicit ArrivalMeter(double wire_per_byte) : wire_per_byte_(wire_per_byte) {}

  /// A chunk of `bytes` with SentTick `sent` is seen at `now`, and began to arrive at most `unseen_ns` before. Adds to
  /// the backlog counters of `lane`.
  void Arrived(uint64_t now, uint32_t sent, uint64_t bytes, uint64_t unseen_ns, abi::LaneTelemetry* lane);
  /// A chunk that does not say when it was sent.
  void ArrivedUntimed(uint64_t bytes) { newest_bytes_ += bytes; }
  /// The reader has held up the sender.
  void Forget() { anchor_ns_ = 0; }

 private:
  // The least delay rises by so much: the clocks drift, and the lane may have another path now.
  static constexpr double kForget = 1e-4;
  // What interrupts that wait for more, and packets that are joined, put between arrivals on an idle path.
  static constexpr uint64_t kJitterNs = 100'000;
  // An interval counts when it is so many times what is not known of its ends,
  static constexpr uint64_t kExact = 8;
  // and a beginning that is known so much worse than another gives way.
  static constexpr uint64_t kBetter = 4;

  /// How much later than the earliest the chunk has come, in ticks.
  int64_t Late(uint64_t now, uint32_t sent);
  void Anchor(uint64_t now, uint32_t sent, uint64_t unseen_ns);

  double wire_per_byte_ = 1;
  bool begun_ = false;
  uint32_t base_ = 0;          // the first chunk's delay
  double least_ = 0;           // delay above base_, as of looked_ns_
  uint64_t looked_ns_ = 0;
  uint64_t newest_bytes_ = 0;  // of the newest chunk, and those since that did not say
  uint64_t anchor_ns_ = 0;     // an arrival whose time is known; 0: since then one has come that was not due yet
  uint64_t busy_until_ns_ = 0; // the wire was, at least: the newest arrival whose time is known
  uint64_t anchor_unseen_ns_ = 0;
  uint32_t anchor_sent_ = 0;   // its tick
  uint64_t bytes_ = 0;         // from that one on, without newest_bytes_
};

}  // namespace weft::net

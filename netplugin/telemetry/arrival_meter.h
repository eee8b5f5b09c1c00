// What the path gives a lane, seen where its chunks arrive. The sender cannot tell: what is not acknowledged may have
// arrived long ago, as acknowledgements wait in queues of their own, and TCP counts a lane as busy all the while.
//
// Two things are known. Each long chunk says when the kernel was given it, on the sender's clock: against the least delay
// that the lane has seen (the clocks' difference is in both) that is the time at which the chunk was due here. And whenever
// a read leaves nothing behind, the kernel's receive timestamp says when the newest byte of the stream came, however late
// the reader was (receive_stamp.h). From the time on at which a chunk was due until it came, the wire had everything before
// it to send: what came in between, from one known byte to another, is what the path gives.
//
// Limits: queues of less than kJitterNs are not seen, which on links above some 10 Gbit/s are most of them; a queue that
// stands for minutes is forgotten by kForget; a sender that is held by the receiver's window looks like a slow path, but
// for what Forget() is told.
#pragma once

#include <array>
#include <cstdint>
#include <ctime>

#include "netplugin/telemetry/telemetry.h"

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
  ArrivalMeter() = default;
  /// `wire_per_byte`: bytes on the wire per byte of the stream.
  explicit ArrivalMeter(double wire_per_byte) : wire_per_byte_(wire_per_byte) {}

  /// The header of a chunk with SentTick `sent` had come by `by_ns` (as MeterNs()). Called in the order of the stream,
  /// before Ended() says that the stream is past it. Adds to the backlog counters of `lane`.
  void Chunk(uint32_t sent, uint64_t by_ns, abi::LaneTelemetry* lane);
  /// Byte `position` of the stream was the newest at `at_ns`, when it came.
  void Ended(uint64_t position, uint64_t at_ns);
  /// The reader has held up the sender.
  void Forget() { count_ = 0; }

 private:
  struct Known {
    uint64_t position = 0;
    uint64_t at_ns = 0;
  };

  // The least delay rises by so much: the clocks drift, and the lane may have another path now.
  static constexpr double kForget = 1e-4;
  // What interrupts that wait for more, and packets that are joined, put between arrivals on an idle path.
  static constexpr uint64_t kJitterNs = 100'000;
  // What one system call may take to copy chunks into the kernel, which all carry the time of its beginning.
  static constexpr uint64_t kCallNs = 5'000'000;
  // Shorter intervals wait until they are part of a longer one.
  static constexpr uint64_t kLeastNs = 8 * kJitterNs;
  static constexpr uint32_t kMostKnown = 32;

  /// How much later than the earliest the chunk has come, in ticks.
  int64_t Late(uint64_t now, uint32_t sent);
  /// The oldest known byte that came at `time_ns` or later.
  const Known* FirstFrom(int64_t time_ns) const;
  void DropBefore(const Known* kept);

  double wire_per_byte_ = 1;
  bool begun_ = false;
  uint32_t base_ = 0;          // the first chunk's delay
  double least_ = 0;           // delay above base_, as of looked_ns_
  uint64_t looked_ns_ = 0;
  uint32_t newest_sent_ = 0;   // the newest chunk's tick
  uint32_t count_ = 0;
  std::array<Known, kMostKnown> known_{};  // since the last that was counted, oldest first
};

}  // namespace weft::net

// What the path gives a lane of queue pairs, seen at the sender: for every part of a message it knows when it was posted, and from the
// receiver, with a later credit, when it had come there. The acknowledgement would not do: it waits in queues of the way back.
//
// The clocks of the two hosts need not agree: the least delay that the lane has seen, less the time that the part's bytes take at the
// port's rate, holds their difference. A part was due so much after it was posted. From then on, or from when the part before it had come
// where that was later, until it came itself the wire had its bytes to send.
//
// Limits: queues of less than kLeastNs are not seen, which on links above some 10 Gbit/s are most of them; a queue that stands for minutes
// is forgotten by kForget.
#pragma once

#include <cstdint>

#include "netplugin/telemetry/telemetry.h"

namespace weft::net {

/// One lane's. Not thread-safe.
class PartMeter {
 public:
  struct Part {
    uint32_t ordinal = 0;     ///< of the lane's parts, counted from 1 and in the order of posting
    uint64_t sent_ns = 0;     ///< when it was posted, MeterNs() of the sender
    uint32_t tick = 0;        ///< when it had come: SentTick() of the receiver's clock
    uint64_t wire_bytes = 0;
    uint64_t late_ns = 0;     ///< it may have come so much earlier
  };

  /// What is told of a part, in the order of posting; parts may be left out. Adds to the backlog counters of `lane`.
  /// `ns_per_byte`: of the port.
  void Came(const Part& part, double ns_per_byte, abi::LaneTelemetry* lane);
  /// The path may be another one.
  void Forget() { *this = PartMeter(); }

 private:
  // The least delay rises by so much: the clocks drift, and the lane may have another path now.
  static constexpr double kForget = 1e-4;
  // Shorter times are no queue but what interrupts are late by; nor are times of less than so often what readers are.
  static constexpr double kLateTimes = 4;
  static constexpr uint64_t kLeastNs = 800'000;

  bool begun_ = false;
  uint32_t base_ = 0;          // the first part's delay, in ticks
  double least_ns_ = 0;        // delay above base_, as of looked_ns_
  uint64_t looked_ns_ = 0;
  uint32_t ordinal_ = 0;       // of the newest part
  double came_ns_ = 0;         // when it came: on the sender's clock, but for base_
};

}  // namespace weft::net

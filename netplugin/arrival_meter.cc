#include "netplugin/arrival_meter.h"

#include <algorithm>

namespace weft::net {

int64_t ArrivalMeter::Late(uint64_t now, uint32_t sent) {
  const uint32_t ticks = static_cast<uint32_t>(now >> 10) - sent;
  if (!begun_) {
    begun_ = true;
    base_ = ticks;
    looked_ns_ = now;
  }
  const double delay = static_cast<int32_t>(ticks - base_);
  least_ = std::min(delay, least_ + kForget * static_cast<double>((now - looked_ns_) >> 10));
  looked_ns_ = now;
  return static_cast<int64_t>(delay - least_);
}

void ArrivalMeter::Arrived(uint64_t now, uint32_t sent, uint64_t bytes, bool awaited, abi::LaneTelemetry* lane) {
  const int64_t due_ns = static_cast<int64_t>(now) - (Late(now, sent) << 10);
  // What one system call took is not held against itself: the time in between may have been its copying.
  const bool same = anchor_ns_ != 0 && sent == anchor_sent_;
  if (!same && due_ns > static_cast<int64_t>(anchor_ns_)) anchor_ns_ = 0;
  bytes_ = anchor_ns_ != 0 ? bytes_ + newest_bytes_ : 0;
  newest_bytes_ = bytes;
  if (same || !awaited) return;
  if (anchor_ns_ != 0) {
    Bump(lane->backlog_ns, now - anchor_ns_);
    Bump(lane->backlog_bytes, static_cast<uint64_t>(static_cast<double>(bytes_) * wire_per_byte_));
  }
  anchor_ns_ = now;
  anchor_sent_ = sent;
  bytes_ = 0;
}

}  // namespace weft::net

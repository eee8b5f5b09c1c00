#include "netplugin/arrival_meter.h"

#include <algorithm>

namespace weft::net {

int64_t ArrivalMeter::Late(uint64_t now, uint32_t sent) {
  const uint32_t ticks = static_cast<uint32_t>(now >> 10) - sent;
  if (!begun_) {
    begun_ = true;
    base_ = ticks;
    stretch_ns_ = now;
  }
  const int64_t delay = static_cast<int32_t>(ticks - base_);
  if (now - stretch_ns_ > kForgetNs) {
    least_before_ = least_;
    least_ = delay;
    stretch_ns_ = now;
  }
  least_ = std::min(least_, delay);
  return delay - std::min(least_, least_before_);
}

void ArrivalMeter::Arrived(uint64_t now, uint32_t sent, uint64_t bytes, bool awaited, abi::LaneTelemetry* lane) {
  if (begun_ && sent == sent_) {  // given to the kernel at once: the next one may have been its copying
    newest_bytes_ += bytes;
    return;
  }
  const int64_t due_ns = static_cast<int64_t>(now) - (Late(now, sent) << 10);
  const bool stood = newest_ns_ != 0 && due_ns <= static_cast<int64_t>(newest_ns_);
  bytes_ = stood ? bytes_ + newest_bytes_ : 0;
  if (!stood) anchor_ns_ = 0;
  if (awaited) {
    if (anchor_ns_ != 0) {
      Bump(lane->backlog_ns, now - anchor_ns_);
      Bump(lane->backlog_bytes, bytes_);
    }
    anchor_ns_ = now;
    bytes_ = 0;
  }
  sent_ = sent;
  newest_ns_ = now;
  newest_bytes_ = bytes;
}

}  // namespace weft::net

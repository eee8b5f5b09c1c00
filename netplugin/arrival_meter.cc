#include "netplugin/arrival_meter.h"

#include <algorithm>

namespace weft::net {

int64_t ArrivalMeter::Late(uint64_t now, uint32_t sent) {
  const uint32_t ticks = static_cast<uint32_t>(now >> kTickShift) - sent;
  if (!begun_) {
    begun_ = true;
    base_ = ticks;
    looked_ns_ = now;
  }
  const double delay = static_cast<int32_t>(ticks - base_);
  least_ = std::min(delay, least_ + kForget * static_cast<double>((now - looked_ns_) >> kTickShift));
  looked_ns_ = now;
  return static_cast<int64_t>(delay - least_);
}

void ArrivalMeter::Anchor(uint64_t now, uint32_t sent, uint64_t unseen_ns) {
  anchor_ns_ = now;
  anchor_sent_ = sent;
  anchor_unseen_ns_ = unseen_ns;
  bytes_ = 0;
}

void ArrivalMeter::Arrived(uint64_t now, uint32_t sent, uint64_t bytes, uint64_t unseen_ns, abi::LaneTelemetry* lane) {
  const int64_t due_ns = static_cast<int64_t>(now) - (Late(now, sent) << kTickShift);
  // What one system call took is not held against itself: the time in between may have been its copying.
  const bool same = anchor_ns_ != 0 && sent == anchor_sent_;
  if (!same && due_ns + static_cast<int64_t>(kJitterNs) > static_cast<int64_t>(busy_until_ns_)) anchor_ns_ = 0;
  bytes_ = anchor_ns_ != 0 ? bytes_ + newest_bytes_ : 0;
  newest_bytes_ = bytes;
  if (same || unseen_ns == kUnknown) return;
  busy_until_ns_ = std::max(anchor_ns_ != 0 ? busy_until_ns_ : 0, now - std::min(now, unseen_ns));
  if (anchor_ns_ == 0) return Anchor(now, sent, unseen_ns);
  const uint64_t passed_ns = now - anchor_ns_;
  if (passed_ns / kExact >= unseen_ns + anchor_unseen_ns_) {
    Bump(lane->backlog_ns, passed_ns);
    Bump(lane->backlog_bytes, static_cast<uint64_t>(static_cast<double>(bytes_) * wire_per_byte_));
    Anchor(now, sent, unseen_ns);
  } else if (unseen_ns < anchor_unseen_ns_ / kBetter) {
    Anchor(now, sent, unseen_ns);
  }
}

}  // namespace weft::net

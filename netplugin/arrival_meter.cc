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
  const uint64_t passed = now - std::min(now, looked_ns_);
  least_ = std::min(delay, least_ + kForget * static_cast<double>(passed >> kTickShift));
  looked_ns_ = std::max(looked_ns_, now);
  return static_cast<int64_t>(delay - least_);
}

void ArrivalMeter::DropKnownBefore(int64_t time_ns) {
  const auto end = known_.begin() + count_;
  const auto kept = std::find_if(known_.begin(), end, [&](const Known& known) { return static_cast<int64_t>(known.at_ns) >= time_ns; });
  count_ = static_cast<uint32_t>(std::move(kept, end, known_.begin()) - known_.begin());
}

void ArrivalMeter::Chunk(uint32_t sent, uint64_t by_ns, abi::LaneTelemetry* lane) {
  const int64_t due_ns = static_cast<int64_t>(by_ns) - (Late(by_ns, sent) << kTickShift) + static_cast<int64_t>(kJitterNs);
  DropKnownBefore(due_ns);
  if (sent == newest_sent_ && count_ > 0 && static_cast<int64_t>(known_[0].at_ns) < due_ns + static_cast<int64_t>(kCallNs)) return;
  newest_sent_ = sent;
  if (count_ == 0) return;
  const Known from = known_[0], to = known_[count_ - 1];
  if (to.at_ns - from.at_ns < kLeastNs) return;
  Bump(lane->backlog_ns, to.at_ns - from.at_ns);
  Bump(lane->backlog_bytes, static_cast<uint64_t>(static_cast<double>(to.position - from.position) * wire_per_byte_));
  known_[0] = to;
  count_ = 1;
}

void ArrivalMeter::Ended(uint64_t position, uint64_t at_ns) {
  if (count_ > 0 && at_ns < known_[count_ - 1].at_ns) count_ = 0;  // a clock was set
  if (count_ == kMostKnown) --count_;
  known_[count_++] = {position, at_ns};
}

}  // namespace weft::net

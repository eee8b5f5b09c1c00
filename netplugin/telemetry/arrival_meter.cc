#include "netplugin/telemetry/arrival_meter.h"

#include <algorithm>
#include <utility>

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

const ArrivalMeter::Known* ArrivalMeter::FirstFrom(int64_t time_ns) const {
  return std::find_if(known_.begin(), known_.begin() + count_, [&](const Known& known) { return static_cast<int64_t>(known.at_ns) >= time_ns; });
}

void ArrivalMeter::DropBefore(const Known* kept) {
  const Known* const end = known_.begin() + count_;
  count_ = static_cast<uint32_t>(std::copy(kept, end, known_.begin()) - known_.begin());
}

void ArrivalMeter::Chunk(uint32_t sent, uint64_t by_ns, abi::LaneTelemetry* lane) {
  const int64_t due_ns = static_cast<int64_t>(by_ns) - (Late(by_ns, sent) << kTickShift) + static_cast<int64_t>(kJitterNs);
  const bool same_call = std::exchange(newest_sent_, sent) == sent;
  DropBefore(FirstFrom(due_ns));
  const Known* const from = FirstFrom(due_ns + (same_call ? static_cast<int64_t>(kCallNs) : 0));
  if (from == known_.begin() + count_) return;
  const Known& to = known_[count_ - 1];
  if (to.at_ns - from->at_ns < kLeastNs) return;
  Bump(lane->backlog_ns, to.at_ns - from->at_ns);
  Bump(lane->backlog_bytes, static_cast<uint64_t>(static_cast<double>(to.position - from->position) * wire_per_byte_));
  DropBefore(&to);
}

void ArrivalMeter::Ended(uint64_t position, uint64_t at_ns) {
  if (count_ > 0 && at_ns < known_[count_ - 1].at_ns) count_ = 0;  // a clock was set
  if (count_ == kMostKnown) {  // every other one
    for (count_ = 0; count_ < kMostKnown / 2; ++count_) known_[count_] = known_[2 * count_];
  }
  known_[count_++] = {position, at_ns};
}

}  // namespace weft::net

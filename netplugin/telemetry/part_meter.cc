#include "netplugin/telemetry/part_meter.h"

#include <algorithm>
#include <utility>

#include "netplugin/telemetry/arrival_meter.h"

namespace weft::net {

void PartMeter::Came(const Part& part, double ns_per_byte, abi::LaneTelemetry* lane) {
  const uint32_t delay_ticks = part.tick - SentTick(part.sent_ns);
  if (!std::exchange(begun_, true)) {
    base_ = delay_ticks;
    looked_ns_ = part.sent_ns;
  }
  constexpr double kTickNs = 1 << kTickShift;
  const double own_ns = ns_per_byte * static_cast<double>(part.wire_bytes);
  const double delay_ns = static_cast<int32_t>(delay_ticks - base_) * kTickNs;
  const uint64_t passed_ns = part.sent_ns - std::min(part.sent_ns, looked_ns_);
  least_ns_ = std::min(delay_ns - own_ns, least_ns_ + kForget * static_cast<double>(passed_ns));
  looked_ns_ = std::max(looked_ns_, part.sent_ns);
  const auto sent_ns = static_cast<double>(part.sent_ns);
  const double due_ns = sent_ns + least_ns_, before_ns = came_ns_;
  came_ns_ = sent_ns + delay_ns;
  // Of a part that nothing is told about it is not known until when it was in the way.
  if (part.ordinal != std::exchange(ordinal_, part.ordinal) + 1) return;
  const double backlog_ns = came_ns_ - std::max(due_ns, before_ns);
  if (backlog_ns < std::max(static_cast<double>(kLeastNs), kLateTimes * static_cast<double>(part.late_ns))) return;
  Bump(lane->backlog_ns, static_cast<uint64_t>(backlog_ns));
  Bump(lane->backlog_bytes, part.wire_bytes);
}

}  // namespace weft::net

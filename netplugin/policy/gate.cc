#include "netplugin/policy/gate.h"

#include <algorithm>

namespace weft::net {

void Gate::Set(const abi::FlowPolicy& entry, uint64_t now) {
  period_ = entry.window_period_ns;
  offset_ = entry.window_offset_ns;
  length_ = entry.window_length_ns;
  if (!holding()) return;
  if (!armed()) return Release(now);
  held_until_ = std::min(now + UntilOpen(now), held_since_ + period_);
}

/// 0 inside a window.
uint64_t Gate::UntilOpen(uint64_t now) const {
  // Openings lie before and after the offset alike.
  const uint64_t into = now >= offset_ ? (now - offset_) % period_ : (period_ - (offset_ - now) % period_) % period_;
  return into < length_ ? 0 : period_ - into;
}

bool Gate::Opens(uint64_t now, uint64_t last_progress) {
  if (holding()) {
    if (now < held_until_) return false;
    Release(now);
    return true;
  }
  const uint64_t last = std::max(last_progress, passed_);
  const uint64_t pause = now > last ? now - last : 0;
  if (pause > std::max(kBurstGapNs, (period_ - length_) / 2)) {
    if (const uint64_t wait = UntilOpen(now); wait > 0) {
      held_since_ = now;
      held_until_ = now + wait;
      return false;
    }
  }
  passed_ = now;
  return true;
}

void Gate::Release(uint64_t now) {
  if (!holding()) return;
  held_ns_ += now - held_since_;
  held_since_ = 0;
  passed_ = now;
}

bool Gate::TakeHeld(uint64_t* ns) {
  if (held_ns_ == 0) return false;
  *ns = held_ns_;
  held_ns_ = 0;
  return true;
}

}  // namespace weft::net

// Amounts by time slot: how many bytes a link carried, or how long a lane had a backlog, in each of the last slots.
// Adding costs the slots that the span covers and asking costs one look, so that a controller of many hosts never
// searches a history.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace weft::controller {

/// The newest kSlots slots of equal length. Slot i covers [i, i + 1) slot lengths after the zero of the caller's axis.
class SlotRing {
 public:
  static constexpr int64_t kSlots = 32;

  /// Spreads `amount` evenly over [from, to), both in slot lengths. What lies before the ring is dropped; an empty span
  /// puts all of it into the slot of `to`. Requires: 0 <= from <= to, all finite.
  void Add(double from, double to, double amount) {
    const auto last = static_cast<int64_t>(to);
    AdvanceTo(last);
    const double span = to - from;
    if (span <= 0) {
      Put(last, amount);
      return;
    }
    const int64_t first = std::max(static_cast<int64_t>(from), last - kSlots + 1);
    for (int64_t slot = first; slot <= last; ++slot) {
      const double begin = std::max(from, static_cast<double>(slot));
      const double end = std::min(to, static_cast<double>(slot + 1));
      if (end > begin) Put(slot, amount * (end - begin) / span);
    }
  }

  /// What fell into `slot`; 0 for slots that are forgotten or still to come.
  double At(int64_t slot) const {
    return slot > newest_ - kSlots && slot <= newest_ && slot >= 0 ? amounts_[Index(slot)] : 0;
  }

  /// Sum over the slots first .. last.
  double Sum(int64_t first, int64_t last) const {
    double sum = 0;
    for (int64_t slot = std::max(first, newest_ - kSlots + 1); slot <= std::min(last, newest_); ++slot) sum += At(slot);
    return sum;
  }

  void Clear() { *this = SlotRing(); }

 private:
  static size_t Index(int64_t slot) { return static_cast<size_t>(slot % kSlots); }

  void AdvanceTo(int64_t slot) {
    if (slot <= newest_) return;
    if (slot - newest_ >= kSlots) {
      amounts_.fill(0);
    } else {
      for (int64_t i = newest_ + 1; i <= slot; ++i) amounts_[Index(i)] = 0;
    }
    newest_ = slot;
  }

  void Put(int64_t slot, double amount) {
    if (slot > newest_ - kSlots && slot <= newest_ && slot >= 0) amounts_[Index(slot)] += amount;
  }

  int64_t newest_ = -1;
  std::array<double, kSlots> amounts_{};
};

}  // namespace weft::controller

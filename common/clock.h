// Time is an argument. Code that needs to know it takes a Clock, so that a test turns the hands itself.
#pragma once

#include <ctime>

#include "common/units.h"

namespace weft {

/// A monotonic clock with an arbitrary zero. Threads: Now() may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Seconds Now() const = 0;
};

/// The machine's monotonic clock.
class SystemClock final : public Clock {
 public:
  Seconds Now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

/// What of a core the calling thread has taken so far.
inline Seconds ThreadProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Seconds(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
}

/// A clock that stands still until told. Not thread-safe.
class ManualClock final : public Clock {
 public:
  Seconds Now() const override { return now_; }
  void Advance(Seconds by) { now_ += by; }

 private:
  Seconds now_{0};
};

}  // namespace weft

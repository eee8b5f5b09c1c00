// Computations that last longer than they take. No torch here.
#pragma once

#include <sys/prctl.h>

#include <thread>

#include "common/clock.h"
#include "common/units.h"

namespace weft::runtime {

/// Lets computations last at least so long. Those that follow each other are measured from the end that the one before was to have, so
/// that what a timer or another process makes late does not add up. Threads: one, whose timers come as exactly as the kernel can; where
/// that is refused they are late by some 50 us after each wait.
class Stretch {
 public:
  /// Of the calling thread.
  static void SetExactTimers() { ::prctl(PR_SET_TIMERSLACK, 1UL); }

  /// Sleeps until the computation that began at `begin` and was over at `over` has lasted `least`; `waited`: before it, for another rank.
  void Last(Seconds begin, Seconds over, Seconds least, bool waited) {
    until_ = (waited ? begin : until_) + least;
    if (until_ > over) std::this_thread::sleep_for(until_ - over);
  }

 private:
  Seconds until_{0};
};

}  // namespace weft::runtime

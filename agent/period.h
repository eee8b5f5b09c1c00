// The iteration period of a training job as one flow shows it: bursts come in groups (the buckets of one iteration), and
// groups follow each other at the period. A new group begins after an idle gap longer than half of the second longest one
// that the flow has lately shown, so that the pauses between buckets, and those that congestion makes, do not count,
// and a checkpoint does no harm.
#pragma once

#include <cstdint>
#include <deque>

#include "common/units.h"

namespace weft::agent {

class PeriodEstimator {
 public:
  /// A completed burst, in order of time. Requires: start <= end. One that starts before its predecessor is ignored.
  void Add(uint64_t start_ns, uint64_t end_ns);

  /// The median of the newest 16 distances between the starts of groups; zero until four groups were seen, or while more
  /// than a quarter of these distances are over a fifth off their median (there is no period). A job's new period shows
  /// after eight or nine iterations when it differs by less than a fifth. When it differs by more, there is none from the
  /// fifth new iteration to the eleventh, and from the twelfth on it is the new one. Idle gaps that shrink below half of the
  /// former ones look like pauses between buckets: the former period stays until those are no longer among the newest 128
  /// bursts. Complexity: O(n log n) of at most 128 bursts.
  Seconds Period() const { return Find().period; }

  struct Rhythm {
    Seconds period{0};            ///< as Period()
    uint64_t newest_start_ns = 0; ///< of the newest group; 0 where there is no period
  };
  Rhythm Find() const;

 private:
  struct Interval {
    uint64_t start_ns, end_ns;
  };
  std::deque<Interval> bursts_;
};

}  // namespace weft::agent

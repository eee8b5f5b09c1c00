// How often each caller may call: a bucket of tokens per caller and kind of call, so that one who calls in a loop is told to wait
// and the others are served. Knows no gRPC and no clock.
//
//   CallBudget budget;
//   if (const Seconds wait = budget.Take(caller, Access::kRead, now); wait > Seconds(0)) ...  // refused: again after `wait`
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "common/units.h"
#include "access/roles.h"

namespace weft::access {

/// A bucket: it fills by `per_s` up to `most`, and a call takes one.
struct CallRate {
  double per_s = 0;
  double most = 0;
};

/// What one caller may do for so long as he likes. A batch system submits an array of jobs at once; without TLS all agents of one
/// machine are one caller.
CallRate RateOf(Access access);

/// Not thread-safe.
class CallBudget {
 public:
  /// Each bucket holds and fills by `times` what RateOf says.
  explicit CallBudget(double times = 1) : times_(times) {}

  /// Callers that are told apart at once; those beyond share one bucket for each kind, until others have been quiet long enough.
  static constexpr size_t kMostBuckets = 4096;

  /// Takes one call of `caller` at `now`; 0: it may go on, else how long until the next one may. What is refused costs nothing.
  /// Complexity: O(log buckets); linear in them when there are too many.
  [[nodiscard]] Seconds Take(const std::string& caller, Access access, Seconds now);

 private:
  struct Bucket {
    double tokens = 0;
    Seconds at{0};
  };
  using Key = std::pair<std::string, Access>;
  /// The key's own bucket, or the common one of its kind.
  Bucket& BucketOf(const Key& key, Seconds now);
  double Filled(const Bucket& bucket, Access access, Seconds now) const;
  CallRate Rate(Access access) const;

  const double times_;
  std::map<Key, Bucket> buckets_;
};

}  // namespace weft::access

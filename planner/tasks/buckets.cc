#include "planner/tasks/buckets.h"

#include <algorithm>

namespace weft::planner {

Seconds ExposedBuckets(const BucketProblem& problem, int64_t count) {
  const double n = static_cast<double>(count);
  const Seconds each = problem.latency + problem.wire / n;
  return std::max(problem.window / n + n * each, problem.window + each) - problem.window;
}

BucketChoice ChooseBuckets(const BucketProblem& problem) {
  if (problem.gradients <= Bytes(0)) return {};
  const int64_t least = std::max<int64_t>(1, problem.least.count());
  int64_t low = 1, high = std::max<int64_t>(1, problem.gradients.count() / least);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (ExposedBuckets(problem, middle + 1) < ExposedBuckets(problem, middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  // Rounded up, so that `count` buckets hold everything.
  return {Bytes((problem.gradients.count() + low - 1) / low), low, ExposedBuckets(problem, low)};
}

}  // namespace weft::planner

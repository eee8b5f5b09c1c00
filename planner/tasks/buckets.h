// How large a gradient bucket should be: small ones start early and leave little for after the backward pass, large ones
// pay the latency of a collective less often.
#pragma once

#include <cstdint>

#include "common/units.h"

namespace weft::planner {

/// Gradients that become final evenly over the last backward pass, in equal buckets, exchanged one after another.
struct BucketProblem {
  Bytes gradients;
  Seconds window{0};        ///< length of that backward pass
  Seconds latency{0};       ///< of one exchange, whatever its size: 2(n-1)α for a ring all-reduce
  Seconds wire{0};          ///< of exchanging all gradients at once, without latency
  Bytes least{1 << 20};     ///< no smaller buckets
};

struct BucketChoice {
  Bytes bytes;              ///< never more than the gradients
  int64_t count = 0;
  Seconds exposed{0};       ///< from the end of backward to the end of the last exchange
};

/// Exposed time with `count` buckets. Bucket k of n is ready at kT/n, and all after it follow at once or when ready, so
/// the end is max over k of kT/n + (n-k+1)c with c = latency + wire/n: linear in k, hence the larger of k = 1 and k = n.
/// Source: derived here. Complexity: O(1).
Seconds ExposedBuckets(const BucketProblem& problem, int64_t count);

/// The count with the least exposed time; ties go to fewer, larger buckets. Both terms above are convex in n, so the
/// optimum is found by bisection. Complexity: O(log(gradients / least)).
BucketChoice ChooseBuckets(const BucketProblem& problem);

}  // namespace weft::planner

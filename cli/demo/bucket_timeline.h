// One iteration of a job whose buckets and their times were measured: gradient all-reduces that overlap with backward, in
// the order in which the buckets become ready, at the rate that the fabric grants. What a job that nobody measured takes is
// the planner's to say (planner/parallelism/cost_model.h).
#pragma once

#include <span>
#include <vector>

#include "common/units.h"

namespace weft::cli {

/// One gradient bucket: ready `ready` after the iteration starts, `bytes` of gradient.
struct Bucket {
  Bytes bytes;
  Seconds ready{0};
};

/// What one iteration of a data-parallel job is made of.
struct DataParallelIteration {
  Seconds compute{0};           ///< forward + backward + optimizer, communication off
  Seconds after_backward{0};    ///< the part of `compute` that needs all gradients (optimizer step)
  std::vector<Bucket> buckets;  ///< ascending `ready`
  int ranks = 1;
  Seconds step_latency{0};      ///< α of one ring step
  /// Share of one core that the exchange takes from compute while both run; 0 with a NIC that does the work.
  double compute_slowdown = 0;
};

struct IterationPrediction {
  Seconds iteration{0};
  Seconds communication{0};          ///< sum over buckets, were they alone
  Seconds exposed_communication{0};  ///< iteration - compute
};

/// Buckets go one after another through a ring all-reduce at `rate` (goodput of the slowest of the ring's flows): bucket
/// i starts at max(ready_i, end of i-1) and takes 2(n-1)(α + S/(n·rate)); the optimizer starts when both backward and
/// the last bucket are done. Source: ring cost, Patarasuk and Yuan 2009, section 3.
IterationPrediction PredictIteration(const DataParallelIteration& iteration, BitsPerSecond rate);

/// Cuts gradients that become ready evenly over backward into buckets of `bucket` bytes (the last may be smaller).
/// `forward` + `backward` + `after_backward` = compute.
std::vector<Bucket> MakeBuckets(Bytes gradients, Bytes bucket, Seconds forward, Seconds backward);

}  // namespace weft::cli

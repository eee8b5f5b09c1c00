#include "cli/demo/bucket_timeline.h"

#include <algorithm>

#include "planner/planner.h"

namespace weft::cli {
namespace {

/// Wall time and how far compute has come, while the exchange slows it down.
class ComputeClock {
 public:
  explicit ComputeClock(double slowdown) : speed_(std::clamp(1 - slowdown, 0.0, 1.0)) {}

  /// Computes up to `progress`; the exchange is busy until `busy`. Returns the wall time then.
  double Advance(double progress, double busy) {
    if (wall_ < busy) {
      const double slowed = (busy - wall_) * speed_;
      if (progress_ + slowed >= progress) {
        wall_ += speed_ > 0 ? std::max(0.0, progress - progress_) / speed_ : 0;
        progress_ = std::max(progress, progress_);
        return wall_;
      }
      progress_ += slowed;
      wall_ = busy;
    }
    wall_ += std::max(0.0, progress - progress_);
    progress_ = std::max(progress, progress_);
    return wall_;
  }

 private:
  double speed_;  // of compute while the exchange is busy
  double wall_ = 0;
  double progress_ = 0;
};

}  // namespace

IterationPrediction PredictIteration(const DataParallelIteration& iteration, BitsPerSecond rate) {
  IterationPrediction prediction;
  ComputeClock compute(iteration.compute_slowdown);
  double exchange_end = 0;  // of the bucket before
  for (const Bucket& bucket : iteration.buckets) {
    const double time =
        planner::RingTime(planner::Collective::kAllReduce, iteration.ranks, bucket.bytes, rate, iteration.step_latency).count();
    prediction.communication += Seconds(time);
    const double ready = compute.Advance(bucket.ready.count(), exchange_end);
    if (time > 0) exchange_end = std::max(ready, exchange_end) + time;
  }
  const double backward_end = compute.Advance((iteration.compute - iteration.after_backward).count(), exchange_end);
  prediction.iteration = Seconds(std::max(backward_end, exchange_end)) + iteration.after_backward;
  prediction.exposed_communication = std::max(Seconds(0), prediction.iteration - iteration.compute);
  return prediction;
}

std::vector<Bucket> MakeBuckets(Bytes gradients, Bytes bucket, Seconds forward, Seconds backward) {
  std::vector<Bucket> buckets;
  Bytes done(0);
  while (done < gradients) {
    const Bytes size = bucket.count() > 0 ? std::min(bucket, gradients - done) : gradients;
    done += size;
    buckets.push_back({size, forward + backward * (done / gradients)});
  }
  return buckets;
}

}  // namespace weft::cli

#include "cli/demo/bucket_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

// With two ranks an all-reduce of S bytes takes 2α + S/rate; 8 Gbit/s are 1 GB/s.
const BitsPerSecond kRate = GigabitsPerSecond(8);

DataParallelIteration TwoBuckets(int64_t first, int64_t second) {
  return {.compute = Seconds(1.3),
          .after_backward = Seconds(0.1),
          .buckets = {{Bytes(first), Seconds(1.0)}, {Bytes(second), Seconds(1.2)}},
          .ranks = 2};
}

// 0.1 s each: [1.0, 1.1] behind backward, [1.2, 1.3] exposed, then 0.1 s of optimizer.
TEST(PredictIteration, OnlyTheLastBucketIsExposedWhenTheRestHides) {
  const IterationPrediction p = PredictIteration(TwoBuckets(100'000'000, 100'000'000), kRate);
  EXPECT_NEAR(p.iteration.count(), 1.4, 1e-12);
  EXPECT_NEAR(p.communication.count(), 0.2, 1e-12);
  EXPECT_NEAR(p.exposed_communication.count(), 0.1, 1e-12);
}

// The first takes until 1.5, so the second runs [1.5, 1.6]; each costs 2α = 0.02 more below.
TEST(PredictIteration, BucketsQueueBehindEachOther) {
  DataParallelIteration iteration = TwoBuckets(500'000'000, 100'000'000);
  EXPECT_NEAR(PredictIteration(iteration, kRate).iteration.count(), 1.7, 1e-12);
  iteration.step_latency = Seconds(0.01);
  EXPECT_NEAR(PredictIteration(iteration, kRate).iteration.count(), 1.74, 1e-12);
}

TEST(PredictIteration, OneRankComputesOnly) {
  DataParallelIteration iteration = TwoBuckets(500'000'000, 100'000'000);
  iteration.ranks = 1;
  const IterationPrediction p = PredictIteration(iteration, kRate);
  EXPECT_NEAR(p.iteration.count(), 1.3, 1e-12);
  EXPECT_EQ(p.exposed_communication.count(), 0);
}

// Compute at half speed while the first bucket runs [1.0, 1.4]: progress 1.2 is reached at 1.4; the second runs until 1.5.
TEST(PredictIteration, AnExchangeThatTakesCoreTimeSlowsBackward) {
  DataParallelIteration iteration = TwoBuckets(400'000'000, 100'000'000);
  iteration.compute_slowdown = 0.5;
  EXPECT_NEAR(PredictIteration(iteration, kRate).iteration.count(), 1.6, 1e-12);
  iteration.compute_slowdown = 1;  // backward stands still until 1.4, goes on to 1.6 and is followed by 0.1 s of bucket
  EXPECT_NEAR(PredictIteration(iteration, kRate).iteration.count(), 1.8, 1e-12);
}

TEST(PredictIteration, MoreRateIsNeverSlower) {
  const DataParallelIteration iteration = TwoBuckets(400'000'000, 300'000'000);
  Seconds last(1e9);
  for (int gigabits = 1; gigabits < 50; ++gigabits) {
    const Seconds now = PredictIteration(iteration, GigabitsPerSecond(gigabits)).iteration;
    EXPECT_LE(now, last);
    EXPECT_GE(now, iteration.compute);
    last = now;
  }
}

TEST(MakeBuckets, CutsEvenlyOverBackward) {
  const std::vector<Bucket> buckets = MakeBuckets(Bytes(10), Bytes(4), Seconds(1), Seconds(2));
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].bytes, Bytes(4));
  EXPECT_EQ(buckets[2].bytes, Bytes(2));
  EXPECT_NEAR(buckets[0].ready.count(), 1.8, 1e-12);
  EXPECT_NEAR(buckets[1].ready.count(), 2.6, 1e-12);
  EXPECT_NEAR(buckets[2].ready.count(), 3.0, 1e-12);
  EXPECT_TRUE(MakeBuckets(Bytes(0), Bytes(4), Seconds(1), Seconds(2)).empty());
}

}  // namespace
}  // namespace weft::cli

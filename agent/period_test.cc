#include "agent/period.h"

#include <gmock/gmock.h>

#include <random>

namespace weft::agent {
namespace {

using ::testing::DoubleNear;

constexpr uint64_t kMs = 1'000'000;

/// `iterations` of 500 ms, each with `buckets` bursts of 20 ms that begin 50 ms after each other, moved by +-jitter.
PeriodEstimator Training(int iterations, int buckets, uint64_t jitter_ms, uint64_t pause_at = 0) {
  PeriodEstimator estimator;
  std::mt19937 random(7);
  uint64_t at = 1000 * kMs;
  for (int i = 0; i < iterations; ++i, at += 500 * kMs) {
    if (pause_at != 0 && static_cast<uint64_t>(i) == pause_at) at += 9000 * kMs;  // a checkpoint
    for (int b = 0; b < buckets; ++b) {
      const uint64_t start = at + (static_cast<uint64_t>(b) * 50 + random() % (jitter_ms + 1)) * kMs;
      estimator.Add(start, start + 20 * kMs);
    }
  }
  return estimator;
}

TEST(Period, IsTheIterationsWhateverTheBuckets) {
  for (const int buckets : {1, 3, 6}) {
    EXPECT_THAT(Training(10, buckets, 0).Period().count(), DoubleNear(0.5, 1e-9)) << buckets;
    EXPECT_THAT(Training(10, buckets, 10).Period().count(), DoubleNear(0.5, 0.011)) << buckets;
  }
}

TEST(Period, TheNewestIterationBeganWithItsFirstBucket) {
  EXPECT_EQ(Training(10, 3, 0).Find().newest_start_ns, (1000 + 9 * 500) * kMs);
  EXPECT_EQ(Training(3, 3, 0).Find().newest_start_ns, 0u) << "no period yet";
}

TEST(Period, SurvivesACheckpoint) { EXPECT_THAT(Training(12, 3, 0, 6).Period().count(), DoubleNear(0.5, 1e-9)); }

// With one burst per iteration 128 of them are remembered: a median of all would tell only after 64 iterations.
TEST(Period, FollowsAJobThatChangedWithinAFewIterations) {
  PeriodEstimator estimator = Training(100, 1, 0);
  uint64_t at = (1000 + 100 * 500) * kMs;
  for (int i = 0; i < 10; ++i, at += 600 * kMs) estimator.Add(at, at + 20 * kMs);
  EXPECT_THAT(estimator.Period().count(), DoubleNear(0.6, 1e-9));
}

// Of the newest 16 distances a quarter may be off: up to four are the new ones, or all but four.
TEST(Period, OfAJobThatChangedByMoreThanAFifthIsUnknownUntilTwelveIterations) {
  PeriodEstimator estimator = Training(100, 1, 0);
  uint64_t at = (1000 + 100 * 500) * kMs;
  estimator.Add(at, at + 20 * kMs);  // ends the last one of 500 ms
  for (int changed = 1; changed <= 16; ++changed) {
    at += 800 * kMs;
    estimator.Add(at, at + 20 * kMs);
    const double expected = changed <= 4 ? 0.5 : changed < 12 ? 0 : 0.8;
    EXPECT_THAT(estimator.Period().count(), DoubleNear(expected, 1e-9)) << changed;
  }
}

TEST(Period, OfAJobThatIdlesLessThanHalfAsLongIsTheFormerOneForAWindow) {
  PeriodEstimator estimator = Training(100, 1, 0);
  uint64_t at = (1000 + 100 * 500) * kMs;
  for (int i = 0; i < 100; ++i, at += 200 * kMs) estimator.Add(at, at + 20 * kMs);
  EXPECT_THAT(estimator.Period().count(), DoubleNear(0.5, 1e-9));
  for (int i = 0; i < 30; ++i, at += 200 * kMs) estimator.Add(at, at + 20 * kMs);
  EXPECT_THAT(estimator.Period().count(), DoubleNear(0.2, 1e-9));
}

TEST(Period, IsUnknownAtFirst) {
  EXPECT_EQ(PeriodEstimator().Period().count(), 0);
  EXPECT_EQ(Training(3, 3, 0).Period().count(), 0);
}

TEST(Period, IsUnknownWhereThereIsNone) {
  // Pauses of 10 ms to 1.3 s, each as likely as the next on a logarithmic scale.
  PeriodEstimator estimator;
  std::mt19937 random(3);
  uint64_t at = 0;
  for (int i = 0; i < 100; ++i) {
    at += (10 * kMs) << (random() % 8);
    estimator.Add(at, at + kMs);
    at += kMs;
  }
  EXPECT_EQ(estimator.Period().count(), 0);
}

TEST(Period, TimesThatRunBackwardsAreIgnored) {
  PeriodEstimator estimator = Training(10, 1, 0);
  estimator.Add(5, 6);
  EXPECT_THAT(estimator.Period().count(), DoubleNear(0.5, 1e-9));
}

}  // namespace
}  // namespace weft::agent

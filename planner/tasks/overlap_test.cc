#include "planner/tasks/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/tasks/buckets.h"
#include "planner/tasks/timeline.h"

namespace weft::planner {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-9;

TEST(RunStreams, StreamsRunSideBySideAndInTheirOrder) {
  // 0: [0, 2]   2: [2, 5]
  // 1:    [2, 6] after 0
  const std::vector<StreamTask> tasks = {{0, Seconds(2)}, {1, Seconds(4), {0, -1}}, {0, Seconds(3)}};
  const OverlapTime time = RunStreams(tasks).value();
  EXPECT_NEAR(time.makespan.count(), 6, kTolerance);
  EXPECT_NEAR(time.exposed.count(), 1, kTolerance);
  EXPECT_NEAR(time.start[1].count(), 2, kTolerance);
  EXPECT_NEAR(time.end[2].count(), 5, kTolerance);
}

// 4 s of compute beside 3 s of communication, each 50 % slower together: after 4.5 s the communication is over and 3 s of
// compute are done; the last second runs alone.
TEST(RunStreams, WhatOverlapsIsSlower) {
  const std::vector<StreamTask> tasks = {{0, Seconds(4)}, {1, Seconds(3)}};
  const OverlapTime time = RunStreams(tasks, {.compute = 0.5, .communication = 0.5}).value();
  EXPECT_NEAR(time.end[1].count(), 4.5, kTolerance);
  EXPECT_NEAR(time.makespan.count(), 5.5, kTolerance);
  EXPECT_NEAR(time.exposed.count(), 1.5, kTolerance);
}

TEST(RunStreams, TasksOfNoLengthPassOnAtOnce) {
  const std::vector<StreamTask> tasks = {{1, Seconds(0)}, {0, Seconds(0), {0, -1}}, {2, Seconds(1), {1, -1}},
                                         {0, Seconds(1), {2, 0}}};
  EXPECT_NEAR(RunStreams(tasks)->makespan.count(), 2, kTolerance);
  EXPECT_EQ(RunStreams({})->makespan, Seconds(0));
}

TEST(RunStreams, IsBetweenTheLongestStreamAndTheSumOnRandomTasks) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<StreamTask> tasks(1 + random() % 30);
    std::vector<double> load(3, 0);
    double sum = 0;
    for (size_t k = 0; k < tasks.size(); ++k) {
      tasks[k] = {static_cast<int32_t>(random() % 3), Seconds(static_cast<double>(random() % 10))};
      if (k > 0 && random() % 2 == 0) tasks[k].after[0] = static_cast<int32_t>(random() % k);
      load[static_cast<size_t>(tasks[k].stream)] += tasks[k].duration.count();
      sum += tasks[k].duration.count();
    }
    const OverlapTime alone = RunStreams(tasks).value();
    for (const double stream : load) EXPECT_GE(alone.makespan.count(), stream - kTolerance);
    EXPECT_LE(alone.makespan.count(), sum + kTolerance);
    for (size_t k = 0; k < tasks.size(); ++k) {
      EXPECT_NEAR((alone.end[k] - alone.start[k]).count(), tasks[k].duration.count(), kTolerance);
      if (tasks[k].after[0] >= 0) {
        EXPECT_GE(alone.start[k], alone.end[static_cast<size_t>(tasks[k].after[0])]);
      }
    }
    // Each side is slower by at most its factor, so the whole is.
    const OverlapTime slow = RunStreams(tasks, {.compute = 0.3, .communication = 0.2}).value();
    EXPECT_LE(slow.makespan.count(), 1.3 * sum + kTolerance);
    EXPECT_GE(slow.makespan.count(), load[0] - kTolerance);
  }
}

TEST(RunStreams, RefusesWhatCannotRun) {
  const auto message = [](StreamTask task, OverlapCost cost = {}) {
    const Result<OverlapTime> time = RunStreams(std::vector<StreamTask>{{0, Seconds(1)}, task}, cost);
    return time ? std::string("accepted") : time.error().message();
  };
  EXPECT_THAT(message({0, Seconds(-1)}), HasSubstr("task 1 takes -1 s"));
  EXPECT_THAT(message({0, Seconds(INFINITY)}), HasSubstr("task 1 takes inf s"));
  EXPECT_THAT(message({-2, Seconds(1)}), HasSubstr("task 1 on stream -2"));
  EXPECT_THAT(message({0, Seconds(1), {1, -1}}), HasSubstr("task 1 after task 1, expected an earlier one"));
  EXPECT_THAT(message({0, Seconds(1)}, {.compute = -0.1}), HasSubstr("slow-downs -0.1 and 0"));
  EXPECT_EQ(RunShardedUnits({}, -1).error().code(), Code::kInvalidArgument);
}

// Gathers of 2 behind computes of 3: only the first is seen. Without prefetch each is.
TEST(RunShardedUnits, PrefetchHidesAllButTheFirstGather) {
  const std::vector<ShardedUnit> units(5, {Seconds(3), Seconds(2), Seconds(0)});
  EXPECT_NEAR(RunShardedUnits(units, 1)->exposed.count(), 2, kTolerance);
  EXPECT_NEAR(RunShardedUnits(units, 0)->exposed.count(), 5 * 2, kTolerance);
  // A small unit before a large one: one ahead cannot hide the large gather, two ahead can.
  const std::vector<ShardedUnit> uneven = {{Seconds(4), Seconds(1)}, {Seconds(1), Seconds(1)}, {Seconds(1), Seconds(4)}};
  EXPECT_NEAR(RunShardedUnits(uneven, 1)->exposed.count(), 1 + 3, kTolerance);
  EXPECT_NEAR(RunShardedUnits(uneven, 2)->exposed.count(), 1 + 0, kTolerance);
}

TEST(ExposedShardedUnits, IsTheStreamsAnswerForEqualUnits) {
  for (const double gather : {0.0, 0.5, 1.0, 1.7}) {
    for (const double reduce : {0.0, 0.4, 1.0, 2.5}) {
      for (const int64_t n : {1, 2, 7, 40}) {
        const ShardedUnit unit{Seconds(1), Seconds(gather), Seconds(reduce)};
        const std::vector<ShardedUnit> units(static_cast<size_t>(n), unit);
        EXPECT_NEAR(ExposedShardedUnits(unit, n).count(), RunShardedUnits(units, 1)->exposed.count(), kTolerance)
            << "gather " << gather << " reduce " << reduce << " n " << n;
      }
    }
  }
  EXPECT_EQ(ExposedShardedUnits({Seconds(1), Seconds(1), Seconds(1)}, 0), Seconds(0));
}

TEST(PiecewiseTime, IsTheStreamsAnswer) {
  for (const double transfer : {0.5, 1.0, 3.0}) {
    for (const int64_t pieces : {1, 2, 8}) {
      const double k = static_cast<double>(pieces);
      std::vector<StreamTask> tasks;
      for (int64_t n = 0; n < pieces; ++n) {
        tasks.push_back({1, Seconds(transfer / k)});
        tasks.push_back({0, Seconds(2 / k + 0.05), {static_cast<int32_t>(2 * n), -1}});
      }
      EXPECT_NEAR(PiecewiseTime(Seconds(transfer), Seconds(2), pieces, Seconds(0.05)).count(),
                  RunStreams(tasks)->makespan.count(), kTolerance);
    }
  }
}

TEST(BestPieces, IsWhatEnumerationFinds) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Seconds transfer(0.01 * static_cast<double>(random() % 300)), compute(0.01 * static_cast<double>(random() % 300));
    const Seconds each(0.001 * static_cast<double>(random() % 50));
    int64_t best = 1;
    for (int64_t k = 2; k <= 32; ++k) {
      if (PiecewiseTime(transfer, compute, k, each) < PiecewiseTime(transfer, compute, best, each)) best = k;
    }
    EXPECT_NEAR(PiecewiseTime(transfer, compute, BestPieces(transfer, compute, 32, each), each).count(),
                PiecewiseTime(transfer, compute, best, each).count(), kTolerance);
  }
}

// Buckets as tasks: ready one after another, exchanged in order.
TEST(ChooseBuckets, IsWhatEnumerationOverTheStreamsFinds) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const BucketProblem problem{.gradients = Bytes(1 + static_cast<int64_t>(random() % (40 << 20))),
                                .window = Seconds(0.001 * static_cast<double>(random() % 100)),
                                .latency = Seconds(0.0001 * static_cast<double>(random() % 100)),
                                .wire = Seconds(0.001 * static_cast<double>(random() % 200))};
    const int64_t most = std::max<int64_t>(1, problem.gradients.count() >> 20);
    double best = INFINITY;
    for (int64_t n = 1; n <= most; ++n) {
      std::vector<StreamTask> tasks;
      for (int64_t k = 0; k < n; ++k) {
        tasks.push_back({0, problem.window / static_cast<double>(n)});
        tasks.push_back({1, problem.latency + problem.wire / static_cast<double>(n), {static_cast<int32_t>(2 * k), -1}});
      }
      const double exposed = RunStreams(tasks)->exposed.count();
      EXPECT_NEAR(ExposedBuckets(problem, n).count(), exposed, kTolerance);
      best = std::min(best, exposed);
    }
    const BucketChoice choice = ChooseBuckets(problem);
    EXPECT_NEAR(choice.exposed.count(), best, kTolerance);
    EXPECT_LE(choice.bytes, problem.gradients);
    EXPECT_GE(choice.bytes * choice.count, problem.gradients);
  }
}

TEST(ChooseBuckets, SmallGradientsAreOneBucket) {
  const BucketProblem small{.gradients = Bytes(700'000), .window = Seconds(1), .latency = Seconds(0), .wire = Seconds(1)};
  EXPECT_EQ(ChooseBuckets(small).bytes, Bytes(700'000));
  EXPECT_EQ(ChooseBuckets(small).count, 1);
  EXPECT_EQ(ChooseBuckets({}).count, 0);
}

}  // namespace
}  // namespace weft::planner

#include "planner/flows/periodic.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::planner::inline flows {
namespace {

const BitsPerSecond kLink = GigabytesPerSecond(1);

/// Computes, then sends for `send` seconds over link 0 when alone there.
PeriodicJob Job(double compute, double send, double gpus = 1) {
  return {.gpus = gpus, .compute = Seconds(compute), .release = Seconds(compute),
          .loads = {{LinkId(0), Bytes(static_cast<int64_t>(send * 1e9)), 1}}};
}

SteadyState Steady(std::vector<PeriodicJob> jobs, std::vector<int32_t> classes) {
  return PeriodicSimulator({&kLink, 1}, jobs).Run(classes);
}

TEST(PeriodicSimulator, AloneAJobTakesComputePlusCommunication) {
  const SteadyState state = Steady({Job(3, 1)}, {0});
  EXPECT_NEAR(state.iteration[0].count(), 4, 1e-9);
  EXPECT_NEAR(state.gpu_use, 0.75, 1e-9);
  EXPECT_EQ(state.whole[0], 23) << "24 iterations end at the horizon, which is not simulated any more";
}

TEST(PeriodicSimulator, OverlappedCommunicationCostsOnlyWhatIsExposed) {
  PeriodicJob job = Job(3, 2);
  job.release = Seconds(2);
  EXPECT_NEAR(Steady({job}, {0}).iteration[0].count(), 4, 1e-9);
  EXPECT_NEAR(IterationAlone({&kLink, 1}, job).count(), 4, 1e-9);
  job.release = Seconds(0.5);
  EXPECT_NEAR(Steady({job}, {0}).iteration[0].count(), 3, 1e-9);
}

// Both send at once and share: 1 s of compute and 2 s for one second's worth of bytes.
TEST(PeriodicSimulator, EqualJobsInOneClassShareFairly) {
  const SteadyState state = Steady({Job(1, 1), Job(1, 1)}, {0, 0});
  EXPECT_NEAR(state.iteration[0].count(), 3, 1e-9);
  EXPECT_NEAR(state.iteration[1].count(), 3, 1e-9);
}

// Interleaved from the start they do not meet at all; nor with a strict order, which makes them interleave.
TEST(PeriodicSimulator, ShiftedOrOrderedJobsInterleave) {
  PeriodicJob shifted = Job(1, 1);
  shifted.start = Seconds(1);
  EXPECT_NEAR(Steady({Job(1, 1), shifted}, {0, 0}).iteration[1].count(), 2, 1e-9);
  const SteadyState ordered = Steady({Job(1, 1), Job(1, 1)}, {0, 1});
  EXPECT_NEAR(ordered.iteration[0].count(), 2, 1e-9);
  EXPECT_NEAR(ordered.iteration[1].count(), 2, 1e-9);
}

// a (2 + 2 s) first: b (1 + 1 s) fits one iteration into each of a's 4 s. b first: a sends in every other second only and
// starts a second late: 2 + 4 s. See IntensityCorrection.
TEST(PeriodicSimulator, StrictOrderDecidesWhoWaits) {
  EXPECT_NEAR(Steady({Job(2, 2), Job(1, 1)}, {0, 1}).iteration[0].count(), 4, 1e-9);
  EXPECT_NEAR(Steady({Job(2, 2), Job(1, 1)}, {0, 1}).iteration[1].count(), 4, 1e-9);
  EXPECT_NEAR(Steady({Job(2, 2), Job(1, 1)}, {1, 0}).iteration[0].count(), 6, 1e-9);
  EXPECT_NEAR(Steady({Job(2, 2), Job(1, 1)}, {1, 0}).iteration[1].count(), 2, 1e-9);
}

TEST(PeriodicSimulator, StarvedAndBlockedJobsHaveNoIteration) {
  PeriodicJob greedy = Job(0, 1);
  const SteadyState state = Steady({greedy, Job(1, 1)}, {0, 1});
  EXPECT_EQ(state.whole[1], 0);
  EXPECT_GT(state.iteration[1].count(), 1e300);
  EXPECT_EQ(state.gpu_use, 0);
  const BitsPerSecond dead(0);
  const std::vector<PeriodicJob> jobs{Job(1, 1), Job(1, 1)};
  const SteadyState blocked = PeriodicSimulator({&dead, 1}, jobs).Run(std::vector<int32_t>{0, 0});
  EXPECT_GT(blocked.iteration[0].count(), 1e300);
}

// a: 1 GB over link 0 (1 GB/s) and 0.5 GB over link 1 (2 GB/s); b: 1.5 GB over link 1. Link 0 holds a at one iteration's
// bytes per second, 0.5 GB/s of link 1, so that b has 1.5 GB/s there: both send for 1 s.
TEST(PeriodicSimulator, ALockStepJobIsHeldByItsSlowestLink) {
  const std::vector<BitsPerSecond> links{kLink, GigabytesPerSecond(2)};
  PeriodicJob a = Job(1, 1), b = Job(1, 1.5);
  a.loads.push_back({LinkId(1), Bytes(500'000'000), 1});
  b.loads[0].link = LinkId(1);
  const SteadyState state = PeriodicSimulator(links, std::vector<PeriodicJob>{a, b}).Run(std::vector<int32_t>{0, 0});
  EXPECT_NEAR(state.iteration[0].count(), 2, 1e-9);
  EXPECT_NEAR(state.iteration[1].count(), 2, 1e-9);
}

// Whole iterations of all jobs inside one common window can never need more than the link has.
TEST(PeriodicSimulator, WholeIterationsFitTheLink) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<PeriodicJob> jobs;
    std::vector<int32_t> classes;
    for (size_t j = 0; j < 2 + random() % 4; ++j) {
      jobs.push_back(Job(0.1 * static_cast<double>(1 + random() % 30), 0.1 * static_cast<double>(1 + random() % 20)));
      jobs.back().release = jobs.back().compute * (static_cast<double>(random() % 5) / 4);
      classes.push_back(static_cast<int32_t>(random() % 3));
    }
    const SteadyState state = Steady(jobs, classes);
    double sent = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      sent += static_cast<double>(state.whole[j] * jobs[j].loads[0].bytes.count());
      EXPECT_GE(state.iteration[j].count(), IterationAlone({&kLink, 1}, jobs[j]).count() * (1 - 1e-9)) << seed;
    }
    EXPECT_LE(sent, state.horizon.count() * 1e9 * (1 + 1e-9)) << seed;
  }
}

}  // namespace
}  // namespace weft::planner::flows

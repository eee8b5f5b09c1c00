#include "planner/flows/priority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace weft::planner::inline flows {
namespace {

using testing::ElementsAre;

const BitsPerSecond kLink = GigabytesPerSecond(1);

PeriodicJob Job(double compute, double send, double gpus = 1, int32_t link = 0) {
  return {.gpus = gpus, .compute = Seconds(compute), .release = Seconds(compute),
          .loads = {{LinkId(link), Bytes(static_cast<int64_t>(send * 1e9)), 1}}};
}

TEST(GpuIntensity, IsGpuTimePerSecondOfCommunication) {
  EXPECT_NEAR(GpuIntensity({&kLink, 1}, Job(3, 2, 8)), 12, 1e-9);
  EXPECT_GT(GpuIntensity({&kLink, 1}, Job(3, 0)), 1e300);
}

// a (2 s + 2 s) first: a 4 s, b (1 s + 1 s) 4 s. b first: b 2 s, a 6 s. In 12 s b sends 3 s more by going first,
// a 2 s: k = 3/2.
TEST(IntensityCorrection, IsTheRatioOfTransmissionTimeGained) {
  EXPECT_NEAR(IntensityCorrection({&kLink, 1}, Job(2, 2), Job(1, 1)), 1.5, 1e-6);
}

TEST(IntensityCorrection, IsOneWhereOrderDoesNotMatter) {
  EXPECT_EQ(IntensityCorrection({&kLink, 1}, Job(5, 1), Job(5, 1)), 1);
}

// b hides its communication altogether and loses nothing by waiting; a gains by going first.
TEST(IntensityCorrection, PutsHiddenCommunicationLast) {
  PeriodicJob b = Job(10, 1);
  b.release = Seconds(2);
  EXPECT_LT(IntensityCorrection({&kLink, 1}, Job(1.3, 1), b), 0.1);
}

TEST(Contentions, ArePairsThatShareALoadedLink) {
  const std::vector<PeriodicJob> jobs{Job(1, 1, 1, 0), Job(1, 1, 1, 1), Job(1, 1, 1, 0)};
  const std::vector<Contention> pairs = Contentions(jobs, std::vector<size_t>{2, 1, 0});
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].first, 0u);
  EXPECT_EQ(pairs[0].second, 2u);
}

// The job with more GPUs per second of traffic goes first; with two classes that is all there is to say.
TEST(PlanPriorities, TheIntenseJobGoesFirst) {
  const std::vector<PeriodicJob> jobs{Job(1, 1, 2), Job(1, 1.5, 16)};
  for (const size_t enumerate : {0u, 4u}) {
    const PriorityPlan plan = PlanPriorities({&kLink, 1}, jobs, {.classes = 2, .enumerate_up_to = enumerate});
    EXPECT_THAT(plan.order, ElementsAre(1, 0));
    EXPECT_THAT(plan.classes, ElementsAre(1, 0));
    EXPECT_TRUE(plan.complete);
    EXPECT_NEAR(plan.gpu_use, plan.gpu_use_order, 1e-12);
  }
}

TEST(PlanPriorities, JobsThatNeverMeetAreAllInTheFirstClass) {
  const std::vector<BitsPerSecond> links{kLink, kLink};
  const std::vector<PeriodicJob> jobs{Job(1, 1, 1, 0), Job(1, 1, 1, 1)};
  EXPECT_THAT(PlanPriorities(links, jobs).classes, ElementsAre(0, 0));
  EXPECT_NEAR(PlanPriorities(links, jobs).gpu_use, 0.5, 1e-9);
}

TEST(PlanPriorities, SaysWhenItsBudgetWasNotEnough) {
  std::vector<PeriodicJob> jobs;
  for (int j = 0; j < 7; ++j) jobs.push_back(Job(1 + 0.3 * j, 1, 1 + j % 3));
  EXPECT_FALSE(PlanPriorities({&kLink, 1}, jobs, {.evaluations = 3}).complete);
  EXPECT_TRUE(PlanPriorities({&kLink, 1}, jobs, {.classes = 3, .evaluations = 100'000}).complete);
}

TEST(PlanPriorities, MoreClassesNeverHurtAndTheSearchNeverLosesToIntensity) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<PeriodicJob> jobs;
    for (int j = 0; j < 4; ++j) {
      jobs.push_back(Job(0.25 * static_cast<double>(1 + random() % 8), 0.25 * static_cast<double>(1 + random() % 4),
                         static_cast<double>(1 + random() % 16)));
    }
    const PriorityPlan one = PlanPriorities({&kLink, 1}, jobs, {.classes = 1, .enumerate_up_to = 0});
    const PriorityPlan three = PlanPriorities({&kLink, 1}, jobs, {.classes = 3, .enumerate_up_to = 0});
    const PriorityPlan plain = PlanPriorities({&kLink, 1}, jobs, {.classes = 3, .evaluations = 0, .enumerate_up_to = 0});
    EXPECT_GE(three.gpu_use_order, plain.gpu_use_order - 1e-9) << seed;
    EXPECT_GE(three.gpu_use, one.gpu_use * 0.99) << seed;
  }
}

}  // namespace
}  // namespace weft::planner::flows

#include "planner/flows/priority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Contentions, NameEachPairOnceHoweverManyLinksTheyShare) {
  std::vector<PeriodicJob> jobs;
  for (int j = 0; j < 130; ++j) {
    PeriodicJob job = Job(1, 1, 1, 0);
    job.loads.push_back({LinkId(1), Bytes(1), 1});
    jobs.push_back(std::move(job));
  }
  std::vector<size_t> order(jobs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  EXPECT_EQ(Contentions(jobs, order).size(), jobs.size() * (jobs.size() - 1) / 2);
}

// The job with more GPUs per second of traffic goes first; with two classes that is all there is to say.
TEST(ClassesByValue, TheIntenseJobGoesFirst) {
  const std::vector<PeriodicJob> jobs{Job(1, 1, 2), Job(1, 1.5, 16)};
  EXPECT_THAT(ClassesByValue(jobs, CorrectedIntensity({&kLink, 1}, jobs), 2), ElementsAre(1, 0));
}

TEST(ClassesByValue, JobsThatNeverMeetAreAllInTheFirstClass) {
  const std::vector<BitsPerSecond> links{kLink, kLink};
  const std::vector<PeriodicJob> jobs{Job(1, 1, 1, 0), Job(1, 1, 1, 1)};
  EXPECT_THAT(ClassesByValue(jobs, CorrectedIntensity(links, jobs), 8), ElementsAre(0, 0));
}

// Too many contentions for a least cut: dynamic programming keeps the order.
TEST(ClassesByValue, KeepsTheOrderOfManyJobs) {
  std::vector<PeriodicJob> jobs;
  std::vector<double> value;
  for (int j = 0; j < 300; ++j) {
    jobs.push_back(Job(1, 1));
    value.push_back(1 + j % 7);
  }
  const std::vector<int32_t> classes = ClassesByValue(jobs, value, 8);
  for (size_t a = 0; a < jobs.size(); ++a) {
    for (size_t b = 0; b < jobs.size(); ++b) {
      if (value[a] > value[b]) EXPECT_LE(classes[a], classes[b]);
    }
  }
  EXPECT_GT(*std::max_element(classes.begin(), classes.end()), 3);
}

}  // namespace
}  // namespace weft::planner::flows

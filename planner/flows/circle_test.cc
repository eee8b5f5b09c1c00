#include "planner/flows/circle.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::planner::inline flows {
namespace {

const BitsPerSecond kLink(100);

CommunicationPattern Pattern(double period, double begin, double end, double rate = 100) {
  return {Seconds(period), {{Seconds(begin), Seconds(end), BitsPerSecond(rate)}}};
}

LinkCircle Random(uint32_t seed, size_t jobs) {
  std::mt19937 random(seed);
  const double periods[] = {4, 6, 8, 12};
  std::vector<CommunicationPattern> patterns;
  for (size_t j = 0; j < jobs; ++j) {
    const double period = periods[random() % 4];
    const double begin = period * static_cast<double>(random() % 40) / 100;
    const double end = begin + period * static_cast<double>(5 + random() % 50) / 100;
    patterns.push_back(Pattern(period, begin, end, 20 * static_cast<double>(1 + random() % 5)));
    if (random() % 3 == 0) patterns.back().bursts.push_back({Seconds(end), Seconds(period), BitsPerSecond(10)});
  }
  return MakeCircle(kLink, patterns);
}

/// Least excess over rotations in steps of the circle, job 0 at rest.
double BruteForce(const LinkCircle& circle, double step, std::vector<double>* rotation, size_t j = 1) {
  if (j >= circle.jobs.size()) return CircleExcess(circle, *rotation);
  double least = 1e300;
  for (double at = 0; at < circle.jobs[j].period.count(); at += step) {
    (*rotation)[j] = at;
    least = std::min(least, BruteForce(circle, step, rotation, j + 1));
  }
  return least;
}

TEST(MakeCircle, RollsPeriodsOntoTheirLeastCommonMultiple) {
  const std::vector<CommunicationPattern> jobs{Pattern(4, 0, 1), Pattern(6, 0, 1)};
  const LinkCircle circle = MakeCircle(kLink, jobs);
  EXPECT_NEAR(circle.perimeter.count(), 12, 1e-9);
  EXPECT_EQ(circle.jobs[0].repeats, 3);
  EXPECT_EQ(circle.jobs[1].repeats, 2);
  EXPECT_NEAR(circle.stretch, 0, 1e-9);
}

TEST(MakeCircle, StretchesPeriodsThatAreNearlyInARatio) {
  const std::vector<CommunicationPattern> jobs{Pattern(1, 0, 0.5), Pattern(1.003, 0, 0.5)};
  const LinkCircle circle = MakeCircle(kLink, jobs);
  EXPECT_EQ(circle.jobs[0].repeats, 1);
  EXPECT_EQ(circle.jobs[1].repeats, 1);
  EXPECT_NEAR(circle.perimeter.count(), 1.003, 1e-12);
  EXPECT_NEAR(circle.stretch, 0.003, 1e-9);
  for (const CircleJob& job : circle.jobs) EXPECT_GE(job.period.count(), 1);
}

// 1 h is 3.6e9 times 1 us, more than a count of repeats holds.
TEST(MakeCircle, PeriodsFarApartGetAFiniteCircleThatStretchesMuch) {
  const std::vector<CommunicationPattern> jobs{Pattern(3600, 0, 1), Pattern(1e-6, 0, 5e-7)};
  const LinkCircle circle = MakeCircle(kLink, jobs);
  EXPECT_GE(circle.perimeter.count(), 3600);
  EXPECT_GT(circle.stretch, 100);
  for (const CircleJob& job : circle.jobs) {
    EXPECT_GE(job.repeats, 1);
    EXPECT_LE(job.repeats, 12 * kMostPeriodRatio + 1);
    EXPECT_NEAR(job.repeats * job.period.count(), circle.perimeter.count(), 1e-6);
  }
}

// Half the circle each, at rest both on the same half: 100 bit/s too many for 1 s of 2 s; score 1 - 100 / 200.
TEST(FitCircle, TwoHalvesFitWithHalfATurn) {
  const std::vector<CommunicationPattern> jobs{Pattern(2, 0, 1), Pattern(2, 0, 1)};
  const LinkCircle circle = MakeCircle(kLink, jobs);
  EXPECT_NEAR(CircleExcess(circle, std::vector<double>{0, 0}), 100, 1e-9);
  EXPECT_NEAR(CircleScore(circle, 100), 0.5, 1e-12);
  const CircleFit fit = FitCircle(circle);
  EXPECT_NEAR(fit.score, 1, 1e-9);
  EXPECT_NEAR(fit.rotation[0], 0, 1e-12);
  EXPECT_NEAR(fit.rotation[1], 1, 1e-9);
}

TEST(FitCircle, ScoreFallsBelowZeroWhereDemandIsSeveralTimesTheCapacity) {
  const std::vector<CommunicationPattern> jobs(4, Pattern(1, 0, 1));
  EXPECT_NEAR(FitCircle(MakeCircle(kLink, jobs)).score, 1 - 3, 1e-9);
}

// Exact on the continuous circle: never above a grid of rotations; and a grid of step s is within what s/2 per job can change:
// each of a job's edges moves its rate by s/2.
TEST(FitCircle, IsNeverAboveBruteForceAndWithinItsStep) {
  for (uint32_t seed = 0; seed < 25; ++seed) {
    for (const size_t jobs : {2u, 3u}) {
      const LinkCircle circle = Random(seed, jobs);
      const CircleFit fit = FitCircle(circle);
      std::vector<double> rotation(jobs, 0);
      const double step = jobs == 2 ? 0.05 : 0.25;
      const double brute = BruteForce(circle, step, &rotation);
      double slack = 1e-6;
      for (const CircleJob& job : circle.jobs) {
        for (const Burst& burst : job.bursts) slack += 2 * job.repeats * burst.rate.value() * step / 2;
      }
      EXPECT_LE(fit.excess, brute + 1e-6) << seed << " " << jobs;
      EXPECT_GE(fit.excess, brute - slack) << seed << " " << jobs;
      EXPECT_NEAR(CircleExcess(circle, fit.rotation), fit.excess, 1e-6) << seed;
      EXPECT_TRUE(fit.exact);
    }
  }
}

// On a grid that has all edges brute force is exact as well.
TEST(FitCircle, EqualsBruteForceForFourJobsOnAGridOfTheirEdges) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    std::vector<CommunicationPattern> jobs;
    for (int j = 0; j < 4; ++j) {
      const double period = random() % 2 == 0 ? 6 : 12;
      const double begin = static_cast<double>(random() % 3);
      jobs.push_back(Pattern(period, begin, begin + static_cast<double>(1 + random() % 3),
                             20 * static_cast<double>(2 + random() % 4)));
    }
    const LinkCircle circle = MakeCircle(kLink, jobs);
    std::vector<double> rotation(4, 0);
    EXPECT_NEAR(FitCircle(circle).excess, BruteForce(circle, 1, &rotation), 1e-6) << seed;
  }
}

// Four jobs with hundreds of bursts on one circle: all trees of their meetings would take hours.
TEST(FitCircle, EndsWithinItsEvaluationsAndIsNoWorseThanAtRest) {
  const std::vector<CommunicationPattern> jobs{Pattern(100, 0, 40), Pattern(97, 0, 40), Pattern(89, 0, 40),
                                               Pattern(1, 0, 0.4)};
  const LinkCircle circle = MakeCircle(kLink, jobs);
  for (const size_t exact_up_to : {4u, 0u}) {
    const CircleFit fit = FitCircle(circle, {.exact_up_to = exact_up_to, .evaluations = 50});
    EXPECT_FALSE(fit.complete) << exact_up_to;
    EXPECT_FALSE(fit.exact) << exact_up_to;
    ASSERT_EQ(fit.rotation.size(), 4u);
    EXPECT_NEAR(CircleExcess(circle, fit.rotation), fit.excess, 1e-6 * fit.excess);
    EXPECT_LE(fit.excess, CircleExcess(circle, std::vector<double>(4, 0)) * (1 + 1e-9)) << exact_up_to;
  }
}

TEST(FitCircle, IsCompleteAndTheSameWhereTheEvaluationsSuffice) {
  const LinkCircle circle = Random(3, 3);
  const CircleFit free = FitCircle(circle), limited = FitCircle(circle, {.evaluations = 1'000'000});
  EXPECT_TRUE(limited.complete);
  EXPECT_TRUE(limited.exact);
  EXPECT_EQ(limited.rotation, free.rotation);
}

TEST(FitCircle, TheGreedyFitIsCloseToTheExactOne) {
  double lost = 0;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const LinkCircle circle = Random(seed, 4);
    const CircleFit exact = FitCircle(circle), greedy = FitCircle(circle, {.exact_up_to = 0});
    EXPECT_FALSE(greedy.exact);
    EXPECT_GE(greedy.excess, exact.excess - 1e-6) << seed;
    lost += exact.score - greedy.score;
  }
  EXPECT_LT(lost / 4, 0.02);
}

}  // namespace
}  // namespace weft::planner::flows

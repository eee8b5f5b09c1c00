#include "planner/flows/time_shift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace weft::planner::inline flows {
namespace {

std::vector<BitsPerSecond> Links(size_t count) { return std::vector<BitsPerSecond>(count, BitsPerSecond(100)); }

/// Sends in [0, share · period) on all of `links`.
ShiftJob Job(double period, double share, const std::vector<int32_t>& links, double rate = 100) {
  ShiftJob job{.period = Seconds(period)};
  for (const int32_t link : links) {
    job.uses.push_back({LinkId(link), {{Seconds(0), Seconds(period * share), BitsPerSecond(rate)}}});
  }
  return job;
}

/// Least total excess for equal periods, phases in steps; job 0 at rest.
double BruteForce(std::span<const BitsPerSecond> capacity, const std::vector<ShiftJob>& jobs, int steps) {
  const double period = jobs[0].period.count();
  std::vector<int> phase(jobs.size(), 0);
  double least = 1e300;
  for (;;) {
    double excess = 0;
    for (size_t l = 0; l < capacity.size(); ++l) {
      for (int s = 0; s < steps; ++s) {
        double demand = 0;
        for (size_t j = 0; j < jobs.size(); ++j) {
          const double at = period * ((s - phase[j] + steps) % steps + 0.5) / steps;
          for (const LinkUse& use : jobs[j].uses) {
            if (use.link.index() != l) continue;
            for (const Burst& b : use.bursts) demand += at > b.begin.count() && at < b.end.count() ? b.rate.value() : 0;
          }
        }
        excess += std::max(0.0, demand - capacity[l].value()) / steps;
      }
    }
    least = std::min(least, excess);
    size_t j = 1;
    for (; j < jobs.size() && phase[j] + 1 == steps; ++j) phase[j] = 0;
    if (j >= jobs.size()) return least;
    ++phase[j];
  }
}

TEST(PlanTimeShifts, TwoJobsOnOneLinkTakeTurns) {
  const ShiftPlan plan = PlanTimeShifts(Links(1), std::vector<ShiftJob>{Job(2, 0.5, {0}), Job(2, 0.5, {0})});
  EXPECT_NEAR(std::abs(plan.shift[1].count() - plan.shift[0].count()), 1, 1e-9);
  ASSERT_EQ(plan.links.size(), 1u);
  EXPECT_NEAR(plan.links[0].score_before, 0.5, 1e-9);
  EXPECT_NEAR(plan.links[0].score, 1, 1e-9);
  EXPECT_NEAR(plan.excess_before, 50, 1e-9);
  EXPECT_NEAR(plan.excess, 0, 1e-6);
  EXPECT_FALSE(plan.loops);
}

TEST(PlanTimeShifts, JobsThatFitAtOnceNeedNoShift) {
  const ShiftPlan plan = PlanTimeShifts(Links(1), std::vector<ShiftJob>{Job(2, 0.5, {0}, 50), Job(2, 0.5, {0}, 50)});
  EXPECT_TRUE(plan.links.empty());
  EXPECT_EQ(plan.shift[0].count(), 0);
  EXPECT_EQ(plan.shift[1].count(), 0);
}

// a-b on link 0, b-c on link 1, c-d on link 2, periods 2, 4, 2, 4: no loop, so every link has its own best score at once.
TEST(PlanTimeShifts, WithoutLoopsEveryLinkIsAtItsOwnOptimum) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto share = [&] { return static_cast<double>(1 + random() % 6) / 8; };
    const std::vector<ShiftJob> jobs{Job(2, share(), {0}), Job(4, share(), {0, 1}), Job(2, share(), {1, 2}),
                                     Job(4, share(), {2, 3}), Job(8, share(), {3})};
    const ShiftPlan plan = PlanTimeShifts(Links(4), jobs);
    EXPECT_FALSE(plan.loops);
    for (const ShiftedLink& link : plan.links) EXPECT_NEAR(link.score, link.best_score, 1e-6) << seed;
    EXPECT_NEAR(plan.excess, plan.excess_bound, 1e-4) << seed;
  }
}

// Three jobs, each pair on a link of its own, each sending half of the time: only two of three pairs can take turns wholly.
TEST(PlanTimeShifts, ALoopThatCannotBeSatisfiedIsReported) {
  const std::vector<ShiftJob> jobs{Job(2, 0.5, {0, 2}), Job(2, 0.5, {0, 1}), Job(2, 0.5, {1, 2})};
  const ShiftPlan plan = PlanTimeShifts(Links(3), jobs);
  EXPECT_TRUE(plan.loops);
  EXPECT_NEAR(plan.excess_bound, 0, 1e-6);
  EXPECT_NEAR(plan.excess, 50, 1e-6) << "as phases of three halves on a circle leave half of a period in common";
  EXPECT_NEAR(plan.excess, BruteForce(Links(3), jobs, 8), 1e-6);
}

// Phases on a grid of eighths, to which all edges belong, are exact for brute force.
TEST(PlanTimeShifts, LoopsOfUpToFourJobsAreSolvedExactly) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<ShiftJob> jobs(3 + seed % 2);
    for (ShiftJob& job : jobs) {
      std::vector<int32_t> links;
      for (int32_t l = 0; l < 4; ++l) {
        if (random() % 3 != 0) links.push_back(l);
      }
      job = Job(1, static_cast<double>(1 + random() % 5) / 8, links, 25 * static_cast<double>(2 + random() % 3));
    }
    const ShiftPlan plan = PlanTimeShifts(Links(4), jobs);
    EXPECT_NEAR(plan.excess, BruteForce(Links(4), jobs, 8), 1e-5) << seed;
    EXPECT_LE(plan.excess_bound, plan.excess + 1e-6) << seed;
    EXPECT_LE(plan.excess, plan.excess_before + 1e-6) << seed;
  }
}

TEST(PlanTimeShifts, LargerLoopsAreNearBruteForce) {
  double found = 0, best = 0;
  for (uint32_t seed = 0; seed < 3; ++seed) {
    std::mt19937 random(seed);
    std::vector<ShiftJob> jobs;
    for (int32_t j = 0; j < 5; ++j) jobs.push_back(Job(1, static_cast<double>(2 + random() % 3) / 8, {j, (j + 1) % 5}));
    found += PlanTimeShifts(Links(5), jobs).excess;
    best += BruteForce(Links(5), jobs, 8);
  }
  EXPECT_LE(found, best * 1.05 + 1e-3);
}

TEST(PlanTimeShifts, LinksOfPeriodsFarApartAreLeftOut) {
  const std::vector<ShiftJob> jobs{Job(3600, 0.5, {0}), Job(1e-6, 0.5, {0}), Job(1, 0.5, {1}), Job(1, 0.5, {1})};
  const ShiftPlan plan = PlanTimeShifts(Links(2), jobs);
  EXPECT_EQ(plan.links_left_out, 1u);
  ASSERT_EQ(plan.links.size(), 1u);
  EXPECT_EQ(plan.links[0].link, LinkId(1));
  EXPECT_NEAR(plan.links[0].score, 1, 1e-9);
}

// The shifts of real jobs are what makes them interleave in the simulation.
TEST(PlanTimeShifts, ShiftsTakeAwayContentionInTheSimulation) {
  const BitsPerSecond link = GigabytesPerSecond(1);
  std::vector<PeriodicJob> jobs;
  for (int j = 0; j < 3; ++j) {
    jobs.push_back({.compute = Seconds(2), .release = Seconds(2), .loads = {{LinkId(0), Bytes(1'000'000'000), 1}}});
  }
  const std::vector<int32_t> one_class(3, 0);
  std::vector<ShiftJob> patterns;
  for (const PeriodicJob& job : jobs) patterns.push_back(PatternOf({&link, 1}, job));
  EXPECT_NEAR(PeriodicSimulator({&link, 1}, jobs).Run(one_class).iteration[0].count(), 5, 1e-6) << "2 s + 3 · 1 s";
  const ShiftPlan plan = PlanTimeShifts({&link, 1}, patterns);
  for (size_t j = 0; j < 3; ++j) jobs[j].start = plan.shift[j];
  for (const Seconds iteration : PeriodicSimulator({&link, 1}, jobs).Run(one_class).iteration) {
    EXPECT_NEAR(iteration.count(), 3, 1e-6);
  }
}

}  // namespace
}  // namespace weft::planner::flows

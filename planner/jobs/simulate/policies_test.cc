#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/baselines/baselines.h"
#include "planner/fabric/testing/leaf_spine.h"
#include "planner/jobs/decide/evaluate.h"
#include "planner/jobs/decide/situation.h"

namespace weft::planner::inline jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Two leaves, `spines` paths between them, links of 1 GB/s; job j runs between the j-th hosts of both leaves.
struct Bench {
  explicit Bench(int spines, const std::vector<RoutableJob>& jobs, int32_t classes = 8) {
    situation.topology = LeafSpine(2, spines, static_cast<int>(jobs.size()), GigabytesPerSecond(1));
    for (const Link& link : situation.topology.links()) situation.capacity.push_back(link.capacity);
    fluid = std::make_shared<FluidSimulation>(situation.capacity);
    for (size_t j = 0; j < jobs.size(); ++j) {
      RoutableJob job = jobs[j];
      const auto host = [&](size_t h) { return *situation.topology.FindNode(fmt::format("h{}", h + 1)); };
      for (RoutableFlow& flow : job.flows) {
        for (auto& links : situation.topology.ShortestPaths(host(j), host(jobs.size() + j))) {
          flow.paths.push_back({std::move(links)});
        }
      }
      const std::vector<size_t> first(job.flows.size(), 0);
      situation.alone.push_back(IterationAlone(situation.capacity, OnPaths(job, first)));
      situation.slots.push_back(fluid->Add({.gpus = job.gpus, .compute = job.compute, .bursts = {{job.release, job.compute}}}));
      situation.jobs.push_back(std::move(job));
      situation.names.push_back(fmt::format("job{}", j));
      situation.keys.push_back(j);
      situation.present.emplace_back();
    }
    situation.state = fluid;
    situation.classes = classes;
    situation.horizon = Seconds(1000);
  }
  Bench(const Bench&) = delete;

  Situation situation;
  std::shared_ptr<FluidSimulation> fluid;
};

RoutableJob Job(double gpus, double compute, int64_t megabytes) {
  return {.gpus = gpus, .compute = Seconds(compute), .release = Seconds(compute),
          .flows = {{Bytes(megabytes * 1'000'000), {}}}};
}

TEST(Ecmp, FlowsKeepTheirPathsWhateverElseIsThere) {
  const Bench two(8, {Job(8, 1, 100), Job(8, 1, 100)}), one(8, {Job(8, 1, 100)});
  EXPECT_EQ(DecideEcmp(two.situation, 7).paths[0], DecideEcmp(one.situation, 7).paths[0]);
}

TEST(Ecmp, SeedsReachEveryPath) {
  const Bench bench(4, {Job(8, 1, 100)});
  std::vector<int> hits(4, 0);
  for (uint64_t seed = 0; seed < 4000; ++seed) ++hits[DecideEcmp(bench.situation, seed).paths[0][0]];
  for (const int h : hits) EXPECT_NEAR(h, 1000, 120);  // four standard deviations
}

TEST(Crux, IntenseJobsChooseFirstAndGoFirst) {
  // Three jobs, two spines: the two most intense ones are alone, the third joins the less loaded of them.
  const Bench bench(2, {Job(8, 1, 100), Job(512, 1, 300), Job(8, 1, 200)});
  const Decision decision = DecideCrux(bench.situation);
  EXPECT_NE(decision.paths[1][0], decision.paths[0][0]);
  EXPECT_EQ(decision.paths[2][0], decision.paths[0][0]);
  EXPECT_LT(decision.classes[0], decision.classes[2]);
  EXPECT_THAT(decision.why.front(), HasSubstr("job1: corrected intensity"));
}

TEST(Cassini, HalfLoadedJobsAreShiftedByHalfAPeriod) {
  const Bench bench(1, {Job(8, 0.5, 500), Job(8, 0.5, 500)});
  const Decision decision = DecideCassini(bench.situation);
  EXPECT_NEAR(decision.gates[1].first.count(), 0.5, 1e-9);
  EXPECT_NEAR(decision.gates[1].period.count(), 1, 1e-9);
  const Outcome shifted = Evaluate(bench.situation, MakeTrial(bench.situation, decision), 40);
  EXPECT_LT(shifted.mean_slowdown, 1.01);
  const Outcome hashed = Evaluate(bench.situation, MakeTrial(bench.situation, DecideEcmp(bench.situation, 1)), 40);
  EXPECT_NEAR(hashed.mean_slowdown, 1.5, 0.01);  // 0.5 s to compute, 1 s for both to send
}

TEST(Cassini, PeriodsOfTwoToOneFitOneCircle) {
  // One job sends 0.25 s of 1 s, the other 0.25 s of 0.5 s: they fit, though the shorter one sends twice per turn.
  const Bench bench(1, {Job(8, 0.75, 250), Job(8, 0.25, 250)});
  const Decision decision = DecideCassini(bench.situation);
  EXPECT_LT(Evaluate(bench.situation, MakeTrial(bench.situation, decision), 40).mean_slowdown, 1.02);
}

TEST(Cassini, TheSecondOfThreeTurnsThoughTheThirdIsWellWhereItIs) {
  // The first two send in the last 0.3 s of 1 s, the third from 0.35 s on: only the second one has to turn.
  RoutableJob third = Job(8, 1, 300);
  third.release = Seconds(0.35);
  const Bench bench(1, {Job(8, 0.7, 300), Job(8, 0.7, 300), third});
  const JobPaths paths(3, {0});
  const CassiniShifts shifts = PlanCassiniShifts(bench.situation, OnPaths(bench.situation, paths));
  EXPECT_NEAR(shifts.score, 1, 1e-9);
  EXPECT_GT(shifts.gates[1].first.count(), 0.1);
  const Decision decision = DecideCassini(bench.situation);
  EXPECT_LT(Evaluate(bench.situation, MakeTrial(bench.situation, decision), 40).mean_slowdown, 1.01);
}

TEST(Sincronia, TheCoflowThatHoldsTheBottleneckLongestIsLast) {
  const Bench bench(1, {Job(8, 1, 300), Job(8, 1, 100), Job(8, 1, 200)});
  EXPECT_THAT(DecideSincronia(bench.situation).classes, ElementsAre(2, 0, 1));
}

TEST(Sincronia, ClassesRunOutAtTheLast) {
  const Bench bench(1, {Job(8, 1, 300), Job(8, 1, 100), Job(8, 1, 200), Job(8, 1, 250)}, 2);
  EXPECT_THAT(DecideSincronia(bench.situation).classes, ElementsAre(1, 0, 1, 1));
}

TEST(Optimal, RefusesWhatItCannotEnumerateAndSaysHowMuchItIs) {
  Bench bench(4, {Job(8, 1, 100), Job(8, 1, 100), Job(8, 1, 100)});
  const Result<Decision> decision = DecideOptimal(bench.situation, 1000);  // (4 paths · 8 classes)^3
  ASSERT_FALSE(decision);
  EXPECT_EQ(decision.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(decision.error().message(), HasSubstr("3.277e+04 cases of paths and classes for 3 jobs"));
  EXPECT_THAT(decision.error().message(), HasSubstr("at most 10000"));
}

TEST(Optimal, KeepsJobsApart) {
  const Bench bench(2, {Job(8, 0.2, 800), Job(8, 0.2, 800)}, 2);
  const Result<Decision> decision = DecideOptimal(bench.situation, kDefaultEvaluations);
  ASSERT_TRUE(decision) << decision.error().message();
  EXPECT_NE(decision->paths[0], decision->paths[1]);
}

TEST(Weft, KeepsJobsApartWherePathsAllow) {
  const Bench bench(3, {Job(8, 0.5, 500), Job(8, 0.5, 500), Job(8, 0.5, 500)});
  const Decision decision = DecideJobs(bench.situation, {});
  const Outcome outcome = Evaluate(bench.situation, MakeTrial(bench.situation, decision), 40);
  EXPECT_NEAR(outcome.p99_slowdown, 1, 1e-6);
}

TEST(Weft, InterleavesWhereTheyDoNot) {
  const Bench bench(1, {Job(8, 0.5, 480), Job(8, 0.5, 480)});
  const Decision decision = DecideJobs(bench.situation, {});
  const Outcome outcome = Evaluate(bench.situation, MakeTrial(bench.situation, decision), 40);
  EXPECT_LT(outcome.mean_slowdown, 1.03);
}

TEST(Weft, PutsTheIntenseJobFirstWhereTheLinkIsTooSmall) {
  // Three jobs that each need 0.8 of the link: somebody has to wait, and it is not the one with 512 GPUs.
  const Bench bench(1, {Job(8, 0.2, 800), Job(512, 0.2, 800), Job(8, 0.2, 800)});
  const Decision decision = DecideJobs(bench.situation, {});
  const Outcome weft = Evaluate(bench.situation, MakeTrial(bench.situation, decision), 40);
  const Outcome hashed = Evaluate(bench.situation, MakeTrial(bench.situation, DecideEcmp(bench.situation, 1)), 40);
  EXPECT_GT(weft.gpu_use, 1.5 * hashed.gpu_use);
}

TEST(Weft, IsAFunction) {
  const Bench bench(2, {Job(8, 0.3, 500), Job(16, 0.5, 300), Job(8, 0.2, 700)});
  const Decision a = DecideJobs(bench.situation, {}), b = DecideJobs(bench.situation, {});
  EXPECT_EQ(a.paths, b.paths);
  EXPECT_EQ(a.classes, b.classes);
  EXPECT_EQ(a.why, b.why);
}

TEST(Weft, WhatRunsNowIsAmongTheFinalistsThoughAnotherPlanIsAsGood) {
  // The plan was confirmed before: what runs now was dropped as the same once more, and its bonus with it.
  Bench bench(1, {Job(8, 0.5, 480), Job(8, 0.5, 480)});
  const Decision first = DecideJobs(bench.situation, {.evaluations = 200});
  const std::vector<PeriodicJob> jobs = OnPaths(bench.situation, first.paths);
  std::vector<FluidSetting> settings;
  for (size_t j = 0; j < jobs.size(); ++j) settings.push_back({LoadsOf(jobs[j]), first.classes[j], first.gates[j]});
  bench.fluid->Apply(std::move(settings));
  bench.situation.present = first.paths;
  const Decision again = DecideJobs(bench.situation, {.evaluations = 200});
  EXPECT_THAT(again.why.front(), StartsWith("present: "));
  EXPECT_EQ(again.paths, first.paths);
  EXPECT_EQ(again.classes, first.classes);
}

TEST(Evaluate, WrongProfilesDiffer) {
  const Bench bench(1, {Job(8, 0.5, 500), Job(8, 0.5, 500)});
  const TrialPlan plan = MakeTrial(bench.situation, DecideEcmp(bench.situation, 1));
  const Outcome exact = Evaluate(bench.situation, plan, 20), off = Evaluate(bench.situation, plan, 20, {3, 0.2});
  EXPECT_NE(exact.gpu_use, off.gpu_use);
  EXPECT_NEAR(off.gpu_use, exact.gpu_use, 0.5 * exact.gpu_use);
}

}  // namespace
}  // namespace weft::planner::jobs

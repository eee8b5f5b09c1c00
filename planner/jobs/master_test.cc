#include "planner/jobs/master.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/flows/periodic.h"

namespace weft::planner::inline jobs {
namespace {

using testing::HasSubstr;

const BitsPerSecond kCut = GigabytesPerSecond(1);

Configuration Config(double compute, double gigabytes, int64_t gpus = 1, double overlap = 0) {
  const double send = gigabytes;  // seconds over a cut of 1 GB/s
  return {.name = "c", .gpus = gpus, .compute = Seconds(compute),
          .iteration = Seconds(std::max(compute, compute + send - overlap)), .loads = {{0, gigabytes * 1e9}}};
}

MasterProblem Problem(std::vector<std::vector<Configuration>> pools) {
  MasterProblem problem{.cuts = {kCut}};
  for (size_t j = 0; j < pools.size(); ++j) problem.jobs.push_back({.name = fmt::format("j{}", j)});
  problem.source = FromPools(std::move(pools));
  return problem;
}

// Two jobs of 1 s compute and 1 s over the cut: together the cut is just full, both run at full speed, half a GPU each.
TEST(SolveMaster, JobsThatFitRunAtFullSpeed) {
  const auto answer = SolveMaster(Problem({{Config(1, 1)}, {Config(1, 1)}}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_NEAR(answer->bound, 1, 1e-6);
  EXPECT_NEAR(answer->rounded, 1, 1e-6);
  EXPECT_TRUE(answer->complete);
}

// 1 s + 2 s with 8 GPUs against 1 s + 2 s with 1: the cut serves 0.5 iterations/s in all; the larger job takes 1/3 of them,
// the other 1/6: 8/3 + 1/6.
TEST(SolveMaster, TheCutGoesToTheIntenseJob) {
  const auto answer = SolveMaster(Problem({{Config(1, 2, 8)}, {Config(1, 2)}}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_NEAR(answer->relaxed, 8.0 / 3 + 1.0 / 6, 1e-6);
  EXPECT_NEAR(answer->bound, answer->relaxed, 1e-5);
  EXPECT_NEAR(answer->jobs[0].share, 1, 1e-6);
  EXPECT_NEAR(answer->jobs[1].share, 0.5, 1e-6);
  EXPECT_NEAR(answer->cut_price[0] * 1e9, 0.5, 1e-6) << "one more byte/s buys 1/2 GB⁻¹ of the second job's computing";
}

// The least speed of the same two: both get 0.25 iterations/s of the 1/3 alone.
TEST(SolveMaster, LeastSpeedSharesEvenly) {
  MasterProblem problem = Problem({{Config(1, 2, 8)}, {Config(1, 2)}});
  problem.objective = MasterObjective::kLeastSpeed;
  const auto answer = SolveMaster(problem);
  ASSERT_TRUE(answer.has_value());
  EXPECT_NEAR(answer->relaxed, 0.75, 1e-6);
  EXPECT_NEAR(answer->bound, 0.75, 1e-5);
}

// A configuration that computes longer but sends less is chosen where the cut is short: column generation finds it.
TEST(SolveMaster, PricesMakeJobsAnswerWithAnotherConfiguration) {
  const std::vector<Configuration> pool{Config(1, 1), Config(1.2, 0.1)};  // 2 s and 1.3 s alone
  const std::vector<Configuration> heavy{Config(1, 3), Config(3.5, 0.6)};  // 4 s and 4.1 s alone
  const auto answer = SolveMaster(Problem({heavy, heavy, heavy, pool}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_GT(answer->columns, 4);
  EXPECT_TRUE(answer->complete);
  EXPECT_NEAR(answer->jobs[0].configuration.compute.count(), 3.5, 1e-9);
  EXPECT_NEAR(answer->rounded, answer->bound, 1e-5) << "all at full speed";
}

// 8 GPUs: job a alone on 8 takes 1 s, on 4 it takes 1.6 s; so does b. Deadlines of 2 s: each on 4 meets it.
TEST(SolveMaster, DeadlinesDecideHowManyGpusAJobGets) {
  Configuration large{.name = "8", .gpus = 8, .compute = Seconds(1), .iteration = Seconds(1)};
  Configuration small{.name = "4", .gpus = 4, .compute = Seconds(1.6), .iteration = Seconds(1.6)};
  MasterProblem problem = Problem({{large, small}, {large, small}});
  problem.objective = MasterObjective::kDeadlines;
  problem.gpus = 8;
  for (MasterJob& job : problem.jobs) job.deadline = Seconds(2);
  const auto answer = SolveMaster(problem);
  ASSERT_TRUE(answer.has_value());
  EXPECT_NEAR(answer->relaxed, 2, 1e-6);
  EXPECT_NEAR(answer->rounded, 2, 1e-6) << "nobody is blocked";
  for (const MasterChoice& choice : answer->jobs) EXPECT_EQ(choice.configuration.name, "4");
  problem.gpus = 4;
  problem.source = FromPools({{small}, {small}});
  const auto blocked = SolveMaster(problem);
  ASSERT_TRUE(blocked.has_value());
  EXPECT_NEAR(blocked->rounded, 1, 1e-6) << "one of two is blocked";
  EXPECT_LE(blocked->rounded, blocked->bound + 1e-9);
}

TEST(SolveMaster, NamesWhatIsWrong) {
  const auto expect = [](const MasterProblem& problem, const char* piece) {
    const auto answer = SolveMaster(problem);
    ASSERT_FALSE(answer.has_value());
    EXPECT_EQ(answer.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(answer.error().message(), HasSubstr(piece));
  };
  MasterProblem problem = Problem({{Config(1, 1)}});
  problem.cuts = {BitsPerSecond(0)};
  expect(problem, "job \"j0\", configuration \"c\": 1000000000 bytes over cut 0 of 0 bytes/s");
  problem.cuts = {};
  expect(problem, "cut 0, must be below 0");
  expect(Problem({{}}), "0 s, must be positive");
  problem = Problem({{Config(1, 1, 16)}});
  problem.gpus = 8;
  expect(problem, "16 GPUs, must be at most the cluster's 8");
  problem = Problem({{Config(1, 1)}});
  problem.objective = MasterObjective::kDeadlines;
  expect(problem, "job \"j0\": weight 1, deadline 0 s");
}

// Whatever classes and shifts the jobs run with, what they do in whole iterations inside one window stays below the bound.
TEST(SolveMaster, TheBoundIsNeverBeatenBySimulatedJobs) {
  double closest = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const size_t links = 1 + random() % 3;
    const std::vector<BitsPerSecond> capacity(links, kCut);
    MasterProblem problem{.cuts = capacity};
    std::vector<std::vector<Configuration>> pools;
    std::vector<PeriodicJob> jobs;
    std::vector<int32_t> classes;
    for (size_t j = 0; j < 2 + random() % 5; ++j) {
      PeriodicJob job{.gpus = static_cast<double>(1 + random() % 16), .compute = Seconds(0.1 * (1 + random() % 20))};
      job.release = job.compute * (static_cast<double>(random() % 5) / 4);
      job.start = Seconds(0.1 * static_cast<double>(random() % 20));
      Configuration c{.name = "only", .gpus = static_cast<int64_t>(job.gpus), .compute = job.compute};
      for (size_t l = 0; l < links; ++l) {
        const int64_t bytes = 100'000'000 * static_cast<int64_t>(random() % 15);
        if (bytes == 0) continue;
        job.loads.push_back({LinkId(static_cast<int32_t>(l)), Bytes(bytes), 1});
        c.loads.push_back({l, static_cast<double>(bytes)});
      }
      c.iteration = IterationAlone(capacity, job);
      pools.push_back({std::move(c)});
      problem.jobs.push_back({.name = "j"});
      jobs.push_back(std::move(job));
      classes.push_back(static_cast<int32_t>(random() % 4));
    }
    problem.source = FromPools(std::move(pools));
    const auto answer = SolveMaster(problem);
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    const SteadyState state = PeriodicSimulator(capacity, jobs, {.warmup = 0, .measured = 40}).Run(classes);
    double use = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      use += jobs[j].gpus * jobs[j].compute.count() * static_cast<double>(state.whole[j]) / state.horizon.count();
    }
    EXPECT_LE(use, answer->bound * (1 + 1e-9)) << seed;
    EXPECT_LE(answer->rounded, answer->bound * (1 + 1e-6)) << seed;
    closest = std::max(closest, use / answer->bound);
  }
  EXPECT_GT(closest, 0.95) << "or the bound would say nothing";
}

}  // namespace
}  // namespace weft::planner::jobs

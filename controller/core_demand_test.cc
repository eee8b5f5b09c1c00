// Paths are planned by what flows carry: jobs that open many connections and send over few, as NCCL's do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;

CoreOptions Options() {
  CoreOptions options;
  options.rates.line_rate = MegabitsPerSecond(100);
  return options;
}

/// Four ranks, two under each leaf: one flow of the ring crosses the spines in each direction. Alone an iteration takes
/// 0.15 + 3 MB / 100 Mbit/s = 0.39 s; with another job on the same spine 0.63 s.
constexpr double kAlone = 0.39;
FakeJob Job(const std::string& id, int first) {
  const auto host = [&](int i) { return fmt::format("h{}", i); };
  return {.id = id, .ring = {host(first), host(first + 1), host(first + 4), host(first + 5)}, .compute_s = 0.15, .bytes = 3e6};
}

/// Starts the job as a library does that connects rings and trees in both directions: twelve connections across the spines,
/// of which two carry bytes. All from ports that a draw chose.
void StartLikeNccl(FakeCluster& cluster, const FakeJob& job, std::mt19937& random) {
  const auto spine = [&] { return static_cast<int>(random() % 2); };
  cluster.Start(job, spine());
  for (int i = 0; i < 5; ++i) {
    cluster.AddIdleFlow(job.id, job.ring[1], job.ring[2], spine());
    cluster.AddIdleFlow(job.id, job.ring[3], job.ring[0], spine());
  }
  for (size_t i = 0; i < job.ring.size(); ++i) {  // the other way round, under the leaves too
    cluster.AddIdleFlow(job.id, job.ring[(i + 1) % job.ring.size()], job.ring[i], spine());
  }
}

void StartTwoJobs(FakeCluster& cluster, std::mt19937& random) {
  StartLikeNccl(cluster, Job("a", 1), random);
  StartLikeNccl(cluster, Job("b", 3), random);
}

void ProbeBoth(FakeCluster& cluster) {
  cluster.Probe("a");
  cluster.Probe("b");
}

/// Iterations of the last three seconds are those of jobs that share nothing.
void ExpectApart(const FakeCluster& cluster, const std::vector<std::string>& jobs, const std::string& when) {
  for (const std::string& job : jobs) EXPECT_NEAR(cluster.Iteration(job, 3), kAlone, 0.04) << job << " " << when;
}

std::vector<PlanPaths> AskedFor(const std::vector<Action>& actions) {
  std::vector<PlanPaths> asked;
  for (const Action& action : actions) {
    if (const auto* question = std::get_if<PlanPaths>(&action)) asked.push_back(*question);
  }
  return asked;
}

size_t Policies(const std::vector<Action>& actions) {
  return static_cast<size_t>(std::count_if(actions.begin(), actions.end(), [](const Action& action) { return std::holds_alternative<PushPolicy>(action); }));
}

// Paths are planned outside of the core: one question at a time, an answer to another one is ignored, and what was decided for flows that
// have ended since, or lost the lanes that it was decided with, is left out.
TEST(Paths, AnAnswerIsForTheQuestionAndForWhatIsStillThere) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 4);
  std::mt19937 random(3);
  cluster.answers_paths = false;
  cluster.RegisterAll();
  StartTwoJobs(cluster, random);
  cluster.Run(0.3);
  ProbeBoth(cluster);
  cluster.Run(8);
  const std::vector<PlanPaths> asked = AskedFor(cluster.actions);
  ASSERT_EQ(asked.size(), 1u) << "one at a time";
  EXPECT_EQ(Policies(cluster.actions), 0u);
  const auto plan = std::make_shared<const planner::FlowPlan>(planner::ChoosePaths(*asked[0].problem));
  const int64_t ignored = core.ignored();
  cluster.Send({.body = PathsPlanned{asked[0].number + 1, plan}});
  cluster.Send({.body = PathsPlanned{asked[0].number, std::make_shared<const planner::FlowPlan>()}});
  EXPECT_EQ(core.ignored(), ignored + 2);
  // Every flow from h2 ends before the answer comes.
  v1::HostSample gone;
  for (const planner::FlowDemand& flow : asked[0].problem->flows) gone.add_closed(flow.key);
  cluster.Send({.body = SampleReceived{"h2", gone}});
  cluster.actions.clear();
  cluster.Send({.body = PathsPlanned{asked[0].number, plan}});
  EXPECT_GT(Policies(cluster.actions), 0u);
  for (const Action& action : cluster.actions) {
    if (const auto* push = std::get_if<PushPolicy>(&action)) {
      EXPECT_NE(push->host, "h2");
    }
  }
  cluster.actions.clear();
  cluster.Run(3);
  EXPECT_EQ(AskedFor(cluster.actions).size(), 1u) << "flows have ended since";
}

TEST(Demand, ConnectionsThatCarryNothingDoNotKeepTwoJobsOnOneSpine) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Core core(Options());
    FakeCluster cluster(core, 2, 2, 4);
    cluster.RegisterAll();
    cluster.Run(0.5);
    StartTwoJobs(cluster, random);
    cluster.Run(0.3);
    ProbeBoth(cluster);
    cluster.Run(6);
    ExpectApart(cluster, {"a", "b"}, fmt::format("3 s after the start with seed {}", seed));
  }
}

TEST(Demand, ControllerThatStartsLateFindsThem) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    CoreOptions observing = Options();
    observing.mode = v1::MODE_OBSERVE;
    Core before(observing), core(Options());
    FakeCluster cluster(before, 2, 2, 4);
    cluster.RegisterAll();
    StartTwoJobs(cluster, random);
    cluster.Run(5);
    cluster.Restart(core);
    cluster.RegisterAll();
    ProbeBoth(cluster);
    cluster.Run(6);
    ExpectApart(cluster, {"a", "b"}, fmt::format("3 s after the controller came with seed {}", seed));
  }
}

TEST(Demand, RestartMovesNothingThatStandsWell) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    Core first(Options()), second(Options());
    FakeCluster cluster(first, 2, 2, 4);
    cluster.RegisterAll();
    cluster.Run(0.5);
    StartTwoJobs(cluster, random);
    cluster.Run(0.3);
    ProbeBoth(cluster);
    cluster.Run(8);
    const auto a = cluster.Iterations("a").size(), b = cluster.Iterations("b").size();
    cluster.Restart(second);
    for (int host = 1; host <= 8; ++host) {  // one after the other
      cluster.Register(fmt::format("h{}", host), {{"a", 9}, {"b", 9}});
      cluster.Run(0.2);
    }
    ProbeBoth(cluster);
    cluster.Run(8);
    for (const auto& [job, from] : {std::pair("a", a), std::pair("b", b)}) {
      const auto& iterations = cluster.Iterations(job);
      for (size_t i = from; i < iterations.size(); ++i) {
        ASSERT_LT(iterations[i].second, kAlone * 1.1) << job << " at " << iterations[i].first << " s with seed " << seed;
      }
    }
    EXPECT_EQ(second.counters().replans, 0) << seed;
  }
}

TEST(Demand, TheThirdJobDoesNotDisturbTwoThatStandApart) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    std::mt19937 random(seed);
    Core core(Options());
    FakeCluster cluster(core, 2, 3, 6);
    const auto job = [](const std::string& id, int first) {
      const auto host = [&](int i) { return fmt::format("h{}", i); };
      return FakeJob{.id = id, .ring = {host(first), host(first + 1), host(first + 6), host(first + 7)}, .compute_s = 0.15,
                     .bytes = 3e6};
    };
    cluster.RegisterAll();
    cluster.Run(0.5);
    StartLikeNccl(cluster, job("a", 1), random);
    StartLikeNccl(cluster, job("b", 3), random);
    cluster.Run(0.3);
    ProbeBoth(cluster);
    cluster.Run(8);
    StartLikeNccl(cluster, job("c", 5), random);
    cluster.Run(0.3);
    cluster.Probe("c");
    cluster.Run(6);
    ExpectApart(cluster, {"a", "b", "c"}, fmt::format("3 s after the third started with seed {}", seed));
  }
}

}  // namespace
}  // namespace weft::controller

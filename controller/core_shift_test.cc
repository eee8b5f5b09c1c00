// The loop of time windows: measure, shift, measure again, against a simulated cluster whose bursts are held by the plugin's
// own gate, over hundreds of iterations whose compute times are noisy and whose samples come late.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <variant>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::HasSubstr;

CoreOptions Options(bool shifts) {
  CoreOptions options;
  options.joint.shifts = shifts;
  options.joint.planning.hash_seeds = 4;
  return options;
}

/// Jobs over one spine, of two hosts each, with agents that measure and samples that are up to 20 ms late.
struct Site {
  Site(const std::vector<FakeJob>& jobs, bool shifts)
      : core(Options(shifts)), cluster(core, 2, 1, static_cast<int>(jobs.size())), names() {
    cluster.measures_periods = true;
    cluster.most_delay_s = 0.02;
    cluster.RegisterAll();
    for (const FakeJob& job : jobs) {
      cluster.Start(job, 0);
      cluster.Run(0.03);
      cluster.Probe(job.id);
      names.push_back(job.id);
    }
  }

  /// Mean over the iterations that ended in the last `seconds`, of all jobs: what they compute of the time.
  double Use(double seconds, const std::vector<FakeJob>& jobs) const {
    double sum = 0;
    for (const FakeJob& job : jobs) sum += job.compute_s / cluster.Iteration(job.id, seconds);
    return sum / static_cast<double>(jobs.size());
  }
  std::vector<std::string> Reasons(const std::string& with) const {
    std::vector<std::string> found;
    for (const v1::Decision& decision : core.decisions()) {
      if (decision.kind() == "shift" && decision.reason().find(with) != std::string::npos) {
        found.push_back(fmt::format("{:.1f} {}: {}", decision.time_s(), decision.job_id(), decision.reason()));
      }
    }
    return found;
  }
  std::string Story() const {
    std::string story = fmt::format("{}\n", fmt::join(Reasons(""), "\n"));
    for (const std::string& name : names) {
      const v1::MultiJobDecision joint = core.FindJob(name)->joint();
      story += fmt::format("{} {}: {} + {} s in {} s; {}\n", cluster.now(), name, joint.release_s(), joint.communication_s(),
                           cluster.Iteration(name, 20), fmt::join(joint.rejected(), "; "));
    }
    return story;
  }
  /// Periods of all windows that hosts were ever given.
  std::vector<double> WindowPeriods() const {
    std::vector<double> periods;
    for (const Action& action : cluster.actions) {
      const auto* push = std::get_if<PushPolicy>(&action);
      if (push == nullptr) continue;
      for (const v1::FlowPolicy& flow : push->policy.flows()) {
        if (flow.window_period_s() > 0) periods.push_back(flow.window_period_s());
      }
    }
    return periods;
  }

  /// The newest question for a plan.
  const PlanJobs* Question() const {
    const PlanJobs* newest = nullptr;
    for (const Action& action : cluster.actions) {
      if (const auto* question = std::get_if<PlanJobs>(&action)) newest = question;
    }
    return newest;
  }
  void Answer(const planner::MultiJobPlan& plan) {
    const uint64_t digest = Question()->digest;
    cluster.Send({.body = JobsPlanned{digest, std::make_shared<const planner::MultiJobPlan>(plan)}});
  }

  Core core;
  FakeCluster cluster;
  std::vector<std::string> names;
};

/// Job number `place` of `count`, from a host under the first leaf to one under the second.
FakeJob Pair(const std::string& id, int place, int count, double compute_s, double send_s, double noise) {
  return {.id = id, .ring = {fmt::format("h{}", place + 1), fmt::format("h{}", place + 1 + count)}, .compute_s = compute_s,
          .bytes = send_s * 12.5e6, .noise = noise};
}

/// Alone 1.2 s + 0.4 s each.
std::vector<FakeJob> Alike(double noise) { return {Pair("left", 0, 2, 1.2, 0.4, noise), Pair("right", 1, 2, 1.2, 0.4, noise)}; }

// 600 s are 375 iterations of 1.6 s. Both jobs begin to send at nearly the same time, and colliding they would take 1.9 s.
TEST(CoreShift, LikeJobsSettleAndStayApartOverHundredsOfIterations) {
  const std::vector<FakeJob> jobs = Alike(0.03);
  Site site(jobs, true);
  site.cluster.Run(150);
  const auto given = site.Reasons("bursts may begin").size();
  EXPECT_GE(given, 2u) << site.Story();
  EXPECT_LE(given, 4u) << site.Story();
  site.cluster.Run(600);
  EXPECT_EQ(site.Reasons("bursts may begin").size(), given) << site.Story();
  EXPECT_TRUE(site.Reasons("taken back").empty()) << site.Story();
  for (const std::string& name : site.names) EXPECT_LT(site.cluster.Iteration(name, 600), 1.6 * 1.05) << name;
}

// A period is known to hold still from some tick on, however late that comes: it is not to be missed.
TEST(CoreShift, JobsGetWindowsWhereTicksComeLate) {
  for (const int64_t steps : {130, 300, 470}) {
    Site site(Alike(0.03), true);
    site.cluster.tick_steps = steps;
    site.cluster.Run(200);
    EXPECT_GE(site.Reasons("bursts may begin").size(), 2u) << steps << " steps: " << site.Story();
  }
}

// What the loop did before it settled: after one job had opened another flow, the other's windows were made from what had
// been made of them, each time shorter.
TEST(CoreShift, WindowsNeverShrinkBelowTheIterationAfterAFlowWasOpened) {
  Site site({Pair("left", 0, 3, 1.2, 0.4, 0.02), Pair("right", 1, 3, 1.2, 0.4, 0.02), Pair("idle", 2, 3, 30, 0.01, 0)}, true);
  site.cluster.Run(120);
  ASSERT_FALSE(site.WindowPeriods().empty()) << site.Story();
  site.cluster.AddFlow("right", "h3", "h1");
  site.cluster.Run(0.5);
  site.cluster.Probe("right");
  site.cluster.Run(400);
  const std::vector<double> periods = site.WindowPeriods();
  EXPECT_GE(*std::min_element(periods.begin(), periods.end()), 1.55) << site.Story();
  EXPECT_LE(site.Reasons("bursts may begin").size(), 8u) << site.Story();
  const size_t before = site.Reasons("").size();
  site.cluster.Run(200);
  EXPECT_EQ(site.Reasons("").size(), before) << "at rest\n" << site.Story();
  EXPECT_LT(site.cluster.Iteration("left", 200), 1.6 * 1.05);
}

// Bursts that reach only 90 % of the links' rates need windows that come later than the rates say.
TEST(CoreShift, WindowsAllowForBurstsThatAreSlowerThanTheLinks) {
  std::vector<FakeJob> jobs = Alike(0.02);
  for (FakeJob& job : jobs) job.efficiency = 0.9;
  Site site(jobs, true);
  site.cluster.Run(600);
  const double alone_s = 1.2 + 0.4 / 0.9;
  for (const std::string& name : site.names) EXPECT_LT(site.cluster.Iteration(name, 300), alone_s * 1.05) << site.Story();
  EXPECT_LE(site.Reasons("bursts may begin").size(), 6u) << site.Story();
  EXPECT_TRUE(site.cluster.HasWindow("right", "h2")) << site.Story();
}

TEST(CoreShift, JobThatBecomesSlowerIsSetFreeAndIsAsFastAsAloneLater) {
  Site site(Alike(0.02), true);
  site.cluster.Run(120);
  ASSERT_TRUE(site.cluster.HasWindow("right", "h2")) << site.Story();
  for (const std::string& name : site.names) site.cluster.SetCompute(name, 1.6);
  site.cluster.Run(500);
  EXPECT_THAT(site.Story(), HasSubstr("none for the next 60 s"));
  // By new windows, or because its bursts keep out of the other's way where the old windows have left them.
  for (const std::string& name : site.names) EXPECT_LT(site.cluster.Iteration(name, 200), 2.0 * 1.05) << site.Story();
}

// Every fifth burst of both comes 0.6 s late, misses its window and waits for the next one: two periods of 1.65 s in place of
// one, so that the median of a job's periods stays what it was and the mean is 6/5 of it.
TEST(CoreShift, JobThatLosesOneTurnInFiveIsSetFree) {
  Site site(Alike(0.005), true);
  site.cluster.Run(120);
  ASSERT_TRUE(site.cluster.HasWindow("right", "h2")) << site.Story();
  for (const std::string& name : site.names) site.cluster.SetStumble(name, 5, 0.6);
  site.cluster.Run(100);
  EXPECT_FALSE(site.Reasons("taken back").empty()) << site.Story();
}

// A plan may be asked for before windows are taken back and come after that.
TEST(CoreShift, AnswerThatComesAfterWindowsWereTakenBackDoesNotGiveThemAgain) {
  Site site(Alike(0.02), true);
  site.cluster.Run(120);
  ASSERT_TRUE(site.cluster.HasWindow("right", "h2")) << site.Story();
  site.cluster.answers = false;
  for (const std::string& name : site.names) site.cluster.SetCompute(name, 1.6);
  site.cluster.Run(50);
  ASSERT_EQ(site.Reasons("none for the next 60 s").size(), 2u) << site.Story();
  const auto given = site.Reasons("bursts may begin").size();
  ASSERT_TRUE(site.Question());
  planner::MultiJobPlan plan = planner::PlanMultiJob(*site.Question()->problem);
  for (planner::MultiJobJobPlan& job : plan.jobs) {
    job.shifted = true;
    job.period = Seconds(2.05);
    job.window = Seconds(0.4);
  }
  plan.jobs[1].burst = Seconds(1);
  site.Answer(plan);
  EXPECT_EQ(site.Reasons("bursts may begin").size(), given) << site.Story();
  EXPECT_FALSE(site.cluster.HasWindow("right", "h2"));
}

// That a link is dead says nothing of the windows: they need not wait once it is back.
TEST(CoreShift, WindowsOfJobsThatCouldNotBeModelledAreNoFailedAttempt) {
  Site site(Alike(0.02), true);
  site.cluster.Run(120);
  ASSERT_TRUE(site.cluster.HasWindow("right", "h2")) << site.Story();
  site.cluster.answers = false;
  for (const std::string& name : site.names) site.cluster.SetCompute(name, 0.9);  // so that it is asked again
  site.cluster.Run(50);
  ASSERT_TRUE(site.Question());
  planner::MultiJobPlan plan = planner::PlanMultiJob(*site.Question()->problem);
  for (planner::MultiJobJobPlan& job : plan.jobs) job = {};
  site.Answer(plan);
  EXPECT_EQ(site.Reasons("taken back: a link on its way is dead").size(), 2u) << site.Story();
  EXPECT_TRUE(site.Reasons("none for the next").empty()) << site.Story();
}

// A job that computes for less time is held longer by windows that come as before: its period does not tell.
TEST(CoreShift, JobsThatBecomeFasterGetWindowsThatComeSooner) {
  Site site(Alike(0.02), true);
  site.cluster.Run(120);
  ASSERT_TRUE(site.cluster.HasWindow("right", "h2")) << site.Story();
  for (const std::string& name : site.names) site.cluster.SetCompute(name, 0.9);
  site.cluster.Run(400);
  for (const std::string& name : site.names) EXPECT_LT(site.cluster.Iteration(name, 100), 1.3 * 1.06) << site.Story();
}

TEST(CoreShift, BurstsThatKeepOutOfEachOthersWayGetNoWindows) {
  // Four times as long: one burst of the long job meets one in four of the other's, and costs little.
  const std::vector<FakeJob> jobs = {Pair("long", 0, 2, 4.0, 0.1, 0), Pair("short", 1, 2, 0.9, 0.1, 0)};
  Site site(jobs, true);
  site.cluster.Run(200);
  EXPECT_TRUE(site.WindowPeriods().empty()) << site.Story();
  EXPECT_GT(site.core.counters().multi_job_plans, 0);
}

// A clock that gains 80 ms in 1,000 s carries a window away by a twentieth of 1.6 s.
TEST(CoreShift, WindowsAreKeptInPlaceWhileHostsClocksDrift) {
  Site site(Alike(0.01), true);
  site.cluster.SetClockDrift("h2", 9e-5);
  site.cluster.SetClockDrift("h4", 9e-5);
  site.cluster.Run(1500);
  EXPECT_FALSE(site.Reasons("time window put back by").empty()) << site.Story();
  EXPECT_TRUE(site.Reasons("taken back").empty()) << site.Story();
  for (const std::string& name : site.names) EXPECT_LT(site.cluster.Iteration(name, 300), 1.6 * 1.05) << site.Story();
}

// The promise by which windows are on unless somebody switches them off.
TEST(CoreShift, DrawnJobsComputeAtLeastAsMuchOfTheTimeWithWindowsAsWithout) {
  std::mt19937 random(11);
  const auto real = [&](double low, double high) { return low + (high - low) * static_cast<double>(random() % 1000) / 1000; };
  double with_all = 0, without_all = 0;
  for (int draw = 0; draw < 8; ++draw) {
    const int count = draw % 2 == 0 ? 2 : 3;
    const double period_s = real(0.8, 2.0);
    std::vector<FakeJob> jobs;
    for (int j = 0; j < count; ++j) {
      const double own_s = draw % 4 == 3 ? real(0.8, 2.0) : period_s * real(0.98, 1.02);
      const double share = real(0.15, 1.1 / count);
      jobs.push_back(Pair(fmt::format("job{}", j), j, count, own_s * (1 - share), own_s * share, real(0, 0.05)));
    }
    Site with(jobs, true), without(jobs, false);
    with.cluster.Run(400);
    without.cluster.Run(400);
    const double a = with.Use(300, jobs), b = without.Use(300, jobs);
    EXPECT_GE(a, 0.98 * b) << "draw " << draw << ", " << count << " jobs of " << period_s << " s\n" << with.Story();
    with_all += a;
    without_all += b;
  }
  EXPECT_GT(with_all, without_all);
}

}  // namespace
}  // namespace weft::controller

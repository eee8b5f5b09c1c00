// The core against scripted events and against a simulated cluster; no clock, no network.
#include "controller/core.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/testing/fake_cluster.h"
#include "controller/testing/two_jobs.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using namespace testing::two_jobs;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

template <typename T>
std::vector<T> Of(const std::vector<Action>& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

TEST(Core, CollisionOfTwoJobsIsResolvedWithinASecond) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(1);
  EXPECT_NE(cluster.Shares("a", "h1"), cluster.Shares("b", "h2"));
  EXPECT_NE(cluster.Shares("a", "h3"), cluster.Shares("b", "h4"));
  cluster.Run(12);
  EXPECT_NEAR(cluster.Iteration("a", 6), kAlone, 0.05);
  EXPECT_NEAR(cluster.Iteration("b", 6), kAlone, 0.05);
  EXPECT_TRUE(DecisionsOf(core, "capacity").empty()) << DecisionsOf(core, "capacity").front().reason();
}

TEST(Core, ObservesACollisionAndMovesLiveConnectionsOnceItMay) {
  Core core(Options(v1::MODE_OBSERVE));
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(8);
  EXPECT_TRUE(Of<PushPolicy>(cluster.actions).empty());
  EXPECT_GT(cluster.Iteration("a", 4), 1.8);
  EXPECT_EQ(core.counters().replans, 0);
  cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  cluster.Run(1);
  EXPECT_EQ(core.counters().replans, 1);
  const auto replans = DecisionsOf(core, "replan");
  ASSERT_EQ(replans.size(), 1u);
  EXPECT_THAT(replans[0].reason(), HasSubstr("mode was set to enforce"));
  EXPECT_THAT(replans[0].reason(), HasSubstr("over leaf1,spine1,leaf2 -> 100 % over leaf1,spine2,leaf2"));
  cluster.Run(8);
  EXPECT_NEAR(cluster.Iteration("a", 4), kAlone, 0.05);
  EXPECT_EQ(core.counters().replans, 1);
}

TEST(Core, PolicyGivesEveryPathALaneAndKeepsThePresentPort) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start(kJobA, 0);
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Run(0.5);
  const auto pushes = Of<PushPolicy>(cluster.actions);
  ASSERT_EQ(pushes.size(), 2u);  // one per sending host
  ASSERT_EQ(pushes[0].policy.flows_size(), 1);
  const v1::FlowPolicy& flow = pushes[0].policy.flows(0);
  ASSERT_EQ(flow.lanes_size(), 2);
  EXPECT_EQ(flow.lanes(0).weight(), kWeightSum);  // the port it had, below the probed ones
  EXPECT_LT(flow.lanes(0).source_port(), 41000);
  EXPECT_EQ(flow.lanes(1).weight(), 0);
  EXPECT_EQ(core.counters().replans, 0);
}

TEST(Core, LinkUseAgreesWithWhatTheLinksCarried) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(20);
  for (const auto& [from, to] :
       {std::pair("leaf1", "spine1"), std::pair("spine2", "leaf1"), std::pair("h1", "leaf1")}) {
    const double truth = cluster.Carried(from, to);
    EXPECT_GT(truth, 0) << from << to;
    EXPECT_NEAR(static_cast<double>(LinkOf(core, from, to).carried_bytes()), truth, 0.02 * truth) << from << to;
  }
}

TEST(Core, BackgroundTrafficIsAvoided) {
  Core core(Options());
  FakeCluster cluster(core, 2, 3, 2);
  StartBoth(cluster);
  cluster.Run(10);
  const std::vector<double> before = cluster.Shares("a", "h1");
  const size_t spine = static_cast<size_t>(std::max_element(before.begin(), before.end()) - before.begin());
  cluster.AddConstant("leaf1", fmt::format("spine{}", spine + 1), 30e6);
  cluster.Run(20);
  EXPECT_EQ(cluster.Shares("a", "h1")[spine], 0);  // the third spine is free
  EXPECT_NEAR(cluster.Iteration("a", 6), kAlone, 0.06);
  EXPECT_NEAR(cluster.Iteration("b", 6), kAlone, 0.06);
}

TEST(Core, SlowCableAndBackgroundStreamOnDifferentSpines) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.SetRate("spine1", "leaf1", 50e6);
  cluster.AddBackground("spine2", "leaf2");
  cluster.Run(30);
  // h1, h2 -> leaf2: 50 over spine 1 and, beside a stream that takes its fair share, 50 or more over spine 2. Staying
  // where they were, each job would be held to 50 Mbit/s at best: 0.4 + 96 / 50 = 2.32 s.
  EXPECT_LT(cluster.Iteration("a", 10), 2.4);
  EXPECT_LT(cluster.Iteration("b", 10), 2.4);
  EXPECT_LT(LinkOf(core, "leaf1", "spine1").available_bps(), 70e6);
  EXPECT_LE(core.counters().replans, 12) << "it flaps";
}

TEST(Core, SlowCableAndBackgroundStreamOnTheSameSpineLeadAwayFromIt) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.AddBackground("leaf1", "spine1");
  cluster.Run(30);
  // 25 Mbit/s left on spine 1, 100 on spine 2: 62.5 each at best, 0.4 + 96 / 62.5 = 1.94 s; 4.24 s for one without.
  EXPECT_LT(cluster.Iteration("a", 10), 2.4);
  EXPECT_LT(cluster.Iteration("b", 10), 2.4);
}

TEST(Core, SlowLinkSomewhereInARingDoesNotBlameTheOthers) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start({.id = "a", .ring = {"h1", "h2", "h3", "h4"}}, 0);  // crosses leaf1 -> leaf2 and back once each
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Run(5);
  cluster.SetRate("h4", "leaf2", 60e6);  // no way around: all flows go at 60 Mbit/s
  cluster.Run(20);
  EXPECT_NEAR(LinkOf(core, "h1", "leaf1").available_bps(), 100e6, 1);
  EXPECT_NEAR(LinkOf(core, "h2", "leaf1").available_bps(), 100e6, 1);
  EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 100e6, 1);
}

TEST(Core, CapacityComesBackAndEstimatesDoNotFlap) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.Run(20);
  const size_t changes = DecisionsOf(core, "capacity").size();
  EXPECT_LE(changes, 4u);
  cluster.SetRate("leaf1", "spine1", 100e6);
  cluster.Run(120);  // two tests
  EXPECT_EQ(LinkOf(core, "leaf1", "spine1").available_bps(), 100e6);
  EXPECT_NEAR(cluster.Iteration("a", 6), kAlone, 0.06);
  EXPECT_NEAR(cluster.Iteration("b", 6), kAlone, 0.06);
}

TEST(Core, EndOfAJobGivesItsPathBack) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(5);
  EXPECT_EQ(core.flow_count(), 4);
  cluster.Finish("b");
  cluster.Run(1);
  EXPECT_EQ(core.flow_count(), 2);
  cluster.Run(70);
  for (const v1::JobStatus& job : core.Jobs()) {
    EXPECT_EQ(job.state(), job.spec().job_id() == "b" ? "released" : "running");
  }
}

TEST(Core, UnknownJobIsManaged) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(3);
  const auto job = core.FindJob("a");
  ASSERT_TRUE(job.has_value());
  EXPECT_EQ(job->state(), "running");
  EXPECT_EQ(job->flows(), 2);
  EXPECT_GT(job->policy_epoch(), 0);
}

TEST(Core, EpochsGrowOverARestartWithoutAJournal) {
  CoreOptions options = Options();
  Core first(options);
  FakeCluster before(first, 2, 2, 2);
  StartBoth(before);
  before.Run(3);
  Core second(options);
  FakeCluster cluster(second, 2, 2, 2);
  for (const char* host : {"h1", "h2", "h3", "h4"}) cluster.Register(host, {{"a", 41}, {"b", 17}});
  cluster.Run(0.5);
  cluster.Start(kJobA, 0);
  cluster.Start(kJobB, 0);
  cluster.Run(0.3);
  cluster.Probe("a");
  cluster.Probe("b");
  cluster.Run(2);
  const auto pushes = Of<PushPolicy>(cluster.actions);
  ASSERT_FALSE(pushes.empty());
  for (const PushPolicy& push : pushes) EXPECT_GT(push.policy.epoch(), push.policy.job_id() == "a" ? 41 : 17);
}

TEST(Core, ReconnectedHostGetsThePolicyThatItMissed) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(3);
  cluster.Send({.body = HostLost{"h1"}});
  const size_t before = cluster.actions.size();
  cluster.Register("h1");  // its agent lost everything
  const std::vector<Action> answer(cluster.actions.begin() + static_cast<std::ptrdiff_t>(before),
                                   cluster.actions.end());
  const auto pushes = Of<PushPolicy>(answer);
  ASSERT_EQ(pushes.size(), 1u);
  EXPECT_EQ(pushes[0].host, "h1");
  EXPECT_EQ(pushes[0].policy.epoch(), core.FindJob("a")->policy_epoch());
}

TEST(Core, LostHostKeepsItsFlowsForAWhile) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(3);
  cluster.Send({.body = HostLost{"h1"}});
  for (int i = 0; i < 25; ++i) core.Handle({.time = Seconds(cluster.now() + i), .body = Tick{}});
  EXPECT_EQ(core.flow_count(), 4);
  for (int i = 25; i < 40; ++i) core.Handle({.time = Seconds(cluster.now() + i), .body = Tick{}});
  EXPECT_EQ(core.flow_count(), 3);
}

TEST(Core, SubmittedJobReachesItsHostsAndIsEndedThere) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.Register("h1");
  JobSubmitted submitted;
  submitted.spec.set_job_id("42");
  submitted.spec.add_hosts("h1");
  submitted.spec.add_hosts("h2");
  (*submitted.plan.mutable_environment())["WEFT_JOB_ID"] = "42";
  cluster.Send({.body = submitted});
  auto launches = Of<PushLaunch>(cluster.actions);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].host, "h1");
  cluster.Register("h2");  // late, still told
  launches = Of<PushLaunch>(cluster.actions);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[1].host, "h2");
  EXPECT_EQ(launches[1].launch.environment().at("WEFT_JOB_ID"), "42");
  EXPECT_EQ(core.FindJob("42")->state(), "managed");
  cluster.Send({.body = JobReleased{"42"}});
  cluster.Send({.body = JobReleased{"42"}});
  EXPECT_EQ(Of<PushEnded>(cluster.actions).size(), 2u);
  EXPECT_EQ(core.FindJob("42")->state(), "released");
}

TEST(Core, SameEventsGiveTheSameActions) {
  std::vector<Event> events;
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.on_event = [&](const Event& event) { events.push_back(event); };
  StartBoth(cluster);
  cluster.Run(6);
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.Run(10);
  Core again(Options());
  std::vector<Action> actions;
  for (const Event& event : events) {
    for (Action& action : again.Handle(event)) actions.push_back(std::move(action));
  }
  ASSERT_GT(Of<PushPolicy>(actions).size(), 2u);
  EXPECT_EQ(SerializeActions(actions), SerializeActions(cluster.actions));
}

}  // namespace
}  // namespace weft::controller

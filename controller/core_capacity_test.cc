// What links give, found out from what flows get.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/testing/two_jobs.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using namespace testing::two_jobs;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

TEST(CoreCapacity, SlowedCableIsFoundAndBothJobsShareWhatIsLeft) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  const int64_t replans = core.counters().replans;
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.Run(12);
  EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 50e6, 6e6);
  EXPECT_EQ(LinkOf(core, "leaf1", "spine2").available_bps(), 100e6);
  EXPECT_EQ(LinkOf(core, "h1", "leaf1").available_bps(), 100e6);
  EXPECT_GT(core.counters().replans, replans);
  ASSERT_FALSE(DecisionsOf(core, "capacity").empty());
  EXPECT_THAT(DecisionsOf(core, "capacity")[0].reason(), HasSubstr("link leaf1->spine1 gave"));
  // 150 Mbit/s for two flows of 100: 75 each, 0.4 + 96 / 75 = 1.68 s where the slow cable alone meant 2.32 s.
  cluster.Run(8);
  EXPECT_LT(cluster.Iteration("a", 6), 1.85);
  EXPECT_LT(cluster.Iteration("b", 6), 1.85);
}

TEST(CoreCapacity, EstimateOfASlowedCableFollowsWhatItGivesToAStripedFlow) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  cluster.SetRate("leaf1", "spine1", 60e6);
  cluster.Run(12);
  ASSERT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 60e6, 8e6);
  cluster.SetRate("leaf1", "spine1", 30e6);  // its lanes are striped by now
  cluster.Run(12);
  EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 30e6, 6e6);
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.Run(80);  // now the other spine holds the jobs: what this one gives shows only when it is tested
  EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 50e6, 8e6);
  EXPECT_EQ(LinkOf(core, "leaf1", "spine2").available_bps(), 100e6);
}

// A quarter of the time there are bytes on the way: three windows of backlog would take 5 s.
TEST(CoreCapacity, ALinkThatGivesFarLessIsFoundByShortBurstsWithinThreeSeconds) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start({.id = "a", .ring = {"h1", "h3"}, .compute_s = 0.2, .bytes = 125e3}, 0);
  cluster.Probe("a");
  cluster.Run(10);
  ASSERT_TRUE(DecisionsOf(core, "capacity").empty());
  const double began_s = cluster.now();
  for (const char* spine : {"spine1", "spine2"}) cluster.SetRate("leaf1", spine, 10e6);  // whichever it is on
  cluster.Run(4);
  ASSERT_FALSE(DecisionsOf(core, "capacity").empty());
  EXPECT_LT(DecisionsOf(core, "capacity")[0].time_s(), began_s + 3);
  EXPECT_THAT(DecisionsOf(core, "capacity")[0].reason(), HasSubstr("link leaf1->spine"));
}

TEST(CoreCapacity, ALinkOfWhichHalfIsLeftTakesWholeWindows) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start({.id = "a", .ring = {"h1", "h3"}, .compute_s = 0.3, .bytes = 875e3}, 0);
  cluster.Probe("a");
  cluster.Run(10);
  for (const char* spine : {"spine1", "spine2"}) cluster.SetRate("leaf1", spine, 70e6);  // 0.1 s of 0.4
  cluster.Run(3);
  EXPECT_TRUE(DecisionsOf(core, "capacity").empty());
  cluster.Run(5);
  EXPECT_FALSE(DecisionsOf(core, "capacity").empty());
}

// Every second a flow opens that nobody has probed yet, between other leaves: whoever does not share its ways is judged all the same.
TEST(CoreCapacity, YoungFlowsElsewhereStopNoJudging) {
  Core core(Options());
  FakeCluster cluster(core, 4, 2, 1);
  cluster.RegisterAll();
  cluster.Run(0.5);
  cluster.Start({.id = "a", .ring = {"h1", "h2"}, .compute_s = 0.2, .bytes = 1.25e6}, 0);
  cluster.Start({.id = "b", .ring = {"h3", "h4"}, .compute_s = 0.2, .bytes = 1.25e6}, 1);
  cluster.Probe("a");
  cluster.Probe("b");
  cluster.Run(20);
  ASSERT_TRUE(DecisionsOf(core, "capacity").empty());
  for (const char* spine : {"spine1", "spine2"}) cluster.SetRate("leaf1", spine, 10e6);
  for (int second = 0; second < 8; ++second) {
    cluster.AddFlow("b", "h3", "h4");
    cluster.Run(1);
  }
  ASSERT_FALSE(DecisionsOf(core, "capacity").empty());
  EXPECT_THAT(DecisionsOf(core, "capacity")[0].reason(), HasSubstr("link leaf1->spine"));
}

// Bursts of several jobs that overlap for parts of slots: in one window of three the link looks full, whatever it gives.
TEST(CoreCapacity, CrossTrafficIsFoundUnderShortBurstsOfManyLanes) {
  Core core(Options());
  FakeCluster cluster(core, 2, 1, 4);
  cluster.RegisterAll();
  cluster.Run(0.5);
  for (const auto& [id, from, to, compute] : {std::tuple("a", "h1", "h5", 0.31), {"b", "h2", "h6", 0.37}, {"c", "h3", "h7", 0.43}}) {
    cluster.Start({.id = id, .ring = {from, to}, .compute_s = compute, .bytes = 1.5e6, .noise = 0.3}, 0);
    cluster.Probe(id);
  }
  cluster.Run(40);
  EXPECT_EQ(LinkOf(core, "leaf1", "spine1").available_bps(), 100e6) << "bursts alone are no deficit";
  cluster.AddConstant("leaf1", "spine1", 36e6);
  cluster.Run(20);
  EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 64e6, 10e6);
  EXPECT_THAT(DecisionsOf(core, "capacity")[0].reason(), HasSubstr("in 8 of 10 windows at least"));
  EXPECT_EQ(LinkOf(core, "leaf2", "spine1").available_bps(), 100e6);
}

TEST(CoreCapacity, ATestThatMeetsItsLinkEndsAtWhatTheLinkGives) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  cluster.SetRate("leaf1", "spine1", 50e6);
  cluster.Run(12);
  cluster.SetRate("leaf1", "spine1", 61e6);
  // Of a test at 75 it gives 81 %: it counts as full, and as no deficit.
  const auto available = [&] { return LinkOf(core, "leaf1", "spine1").available_bps(); };
  while (cluster.now() < 300 && available() < 70e6) cluster.Run(0.1);
  ASSERT_GT(available(), 70e6) << "tested";
  while (cluster.now() < 300 && available() > 70e6) cluster.Run(0.1);
  EXPECT_NEAR(available(), 61e6, 3e6) << "and no value between";
}

TEST(CoreCapacity, RouteThatChangesUnderALoadedLaneIsJudgedAnew) {
  for (const double seconds : {0.3, 0.7, 1.1, 1.5, 1.9}) {  // wherever in the lane's windows it happens
    CoreOptions slow = Options();
    slow.monitor.windows = 9;
    Core core(slow);
    FakeCluster cluster(core, 2, 2, 2);
    StartBoth(cluster);
    cluster.Run(10);
    for (const char* spine : {"spine1", "spine2"}) cluster.SetRate("leaf1", spine, 40e6);
    cluster.Run(seconds);
    cluster.Reroute();
    cluster.Probe("a");
    cluster.Probe("b");
    cluster.Run(20);
    EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 40e6, 6e6) << seconds;
    EXPECT_NEAR(LinkOf(core, "leaf1", "spine2").available_bps(), 40e6, 6e6) << seconds;
  }
}

TEST(CoreCapacity, CableSlowedInBothDirectionsIsFoundOnBoth) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  StartBoth(cluster);
  cluster.Run(10);
  for (const auto& [from, to] : {std::pair("leaf1", "spine1"), std::pair("spine1", "leaf1")}) {
    cluster.SetRate(from, to, 50e6);
  }
  cluster.Run(15);
  EXPECT_NEAR(LinkOf(core, "leaf1", "spine1").available_bps(), 50e6, 6e6);
  EXPECT_NEAR(LinkOf(core, "spine1", "leaf1").available_bps(), 50e6, 6e6);
  cluster.Run(5);
  EXPECT_LT(cluster.Iteration("a", 5), 1.85);
  EXPECT_LT(cluster.Iteration("b", 5), 1.85);
}

}  // namespace
}  // namespace weft::controller

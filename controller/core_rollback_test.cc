// Moves after which iterations are longer are taken back, and not made again at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::HasSubstr;

// At 100 Mbit/s 0.5 s + 1 s each alone, 0.5 s + 2 s where they share a spine.
const FakeJob kOne{.id = "one", .ring = {"h1", "h4"}, .compute_s = 0.5, .bytes = 12.5e6};
const FakeJob kTwo{.id = "two", .ring = {"h2", "h5"}, .compute_s = 0.5, .bytes = 12.5e6};

/// Each job on a spine of its own, measured.
class CoreRollback : public ::testing::Test {
 protected:
  static CoreOptions Options() {
    CoreOptions options;
    options.joint.planning.paths = false;
    return options;
  }

  explicit CoreRollback(CoreOptions options = Options()) : core(options), cluster(core, 2, 2, 3) {
    cluster.measures_periods = true;
    cluster.RegisterAll();
    Open(kOne, 0);
    Open(kTwo, 1);
    cluster.Run(30);
  }

  void Open(const FakeJob& job, int spine) {
    cluster.Start(job, spine);
    cluster.Run(0.3);
    cluster.Probe(job.id);
  }
  double Over(const FakeJob& job, size_t spine) const { return cluster.Shares(job.id, job.ring[0])[spine]; }

  std::vector<std::string> Reasons(const std::string& kind) const {
    std::vector<std::string> reasons;
    for (const v1::Decision& decision : core.decisions()) {
      if (decision.kind() == kind) reasons.push_back(decision.reason());
    }
    return reasons;
  }

  /// Has the core ask for paths again, as a flow has come.
  void Ask(const FakeJob& job = kOne) {
    cluster.AddIdleFlow(job.id, job.ring[0], job.ring[1], 0);
    cluster.Run(0.6);
  }

  /// From now on the answer is that all flows go over the first spine.
  void PutAllOverTheFirstSpine(const FakeJob& asks = kOne) {
    cluster.plan_paths = [](const planner::FlowProblem& problem) {
      planner::FlowPlan plan;
      for (const planner::FlowDemand& flow : problem.flows) {
        planner::FlowShare& share = plan.flows.emplace_back();
        share.key = flow.key;
        for (const planner::CandidatePath& path : flow.paths) {
          const bool crosses = std::ranges::any_of(path.links, [&](LinkId link) {
            return problem.topology.LinkName(link).find("spine1") != std::string::npos;
          });
          share.shares.push_back(crosses || flow.paths.size() == 1 ? 1 : 0);
        }
      }
      return plan;
    };
    Ask(asks);
  }

  Core core;
  FakeCluster cluster;
};

TEST_F(CoreRollback, MovesThatMadeIterationsLongerAreTakenBackWithinFiveIterations) {
  ASSERT_NEAR(cluster.Iteration("one", 10), 1.5, 0.1);
  const double asked_s = cluster.now();
  PutAllOverTheFirstSpine();
  ASSERT_EQ(Reasons("replan").size(), 1u);
  cluster.Run(2);
  ASSERT_EQ(Over(kTwo, 0), 1) << "moved";
  cluster.Run(14);
  ASSERT_EQ(Reasons("rollback").size(), 1u);
  EXPECT_THAT(Reasons("rollback")[0], HasSubstr("not tried again for 60 s"));
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == "rollback") EXPECT_LE(decision.time_s() - asked_s, 5 * 2.5 + 1);
  }
  EXPECT_EQ(Over(kOne, 0), 2) << "with the idle one";
  EXPECT_EQ(Over(kTwo, 1), 1);
  cluster.Run(20);
  EXPECT_NEAR(cluster.Iteration("two", 10), 1.5, 0.1);
}

TEST_F(CoreRollback, TheSameMovesAreLeftOutForATimeThatDoubles) {
  PutAllOverTheFirstSpine();
  cluster.Run(15);
  ASSERT_EQ(Reasons("rollback").size(), 1u);
  Ask();
  cluster.Run(20);
  EXPECT_EQ(Over(kTwo, 1), 1) << "not again";
  EXPECT_EQ(Reasons("replan").size(), 1u);
  cluster.Run(40);
  Ask();
  cluster.Run(16);
  EXPECT_EQ(Reasons("replan").size(), 2u);
  ASSERT_EQ(Reasons("rollback").size(), 2u);
  EXPECT_THAT(Reasons("rollback")[1], HasSubstr("not tried again for 120 s"));
}

TEST_F(CoreRollback, MovesThatDoNoHarmStay) {
  cluster.Finish("one");  // alone either spine is as good as the other
  cluster.Run(30);
  PutAllOverTheFirstSpine(kTwo);
  cluster.Run(30);
  EXPECT_EQ(Over(kTwo, 0), 2) << "with the idle one";
  EXPECT_TRUE(Reasons("rollback").empty());
}

TEST_F(CoreRollback, ALinkThatChangesMeanwhileEndsTheTrial) {
  PutAllOverTheFirstSpine();
  cluster.Run(1.5);
  for (const char* leaf : {"leaf1", "leaf2"}) {
    cluster.SetRate(leaf, "spine1", 20e6);
    cluster.SetRate("spine1", leaf, 20e6);
  }
  cluster.Run(20);
  ASSERT_FALSE(Reasons("capacity").empty());
  EXPECT_TRUE(Reasons("rollback").empty()) << "nobody knows what made iterations longer";
}

class CoreWithoutRollback : public CoreRollback {
 protected:
  static CoreOptions Without() {
    CoreOptions options = Options();
    options.rollback = false;
    return options;
  }
  CoreWithoutRollback() : CoreRollback(Without()) {}
};

TEST_F(CoreWithoutRollback, NothingIsTakenBack) {
  PutAllOverTheFirstSpine();
  cluster.Run(30);
  EXPECT_EQ(Over(kTwo, 0), 1);
  EXPECT_TRUE(Reasons("rollback").empty());
}

}  // namespace
}  // namespace weft::controller

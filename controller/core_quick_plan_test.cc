// Many flows: a change is answered by a quick plan, and what that leaves by a whole one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;

/// The questions that were asked, in their order.
std::vector<std::shared_ptr<const planner::FlowProblem>> Questions(const FakeCluster& cluster) {
  std::vector<std::shared_ptr<const planner::FlowProblem>> asked;
  for (const Action& action : cluster.actions) {
    if (const auto* question = std::get_if<PlanPaths>(&action)) asked.push_back(question->problem);
  }
  return asked;
}

struct Site {
  Site() : core(Options()), cluster(core, 2, 2, 3) {
    cluster.RegisterAll();
    for (const int i : {1, 2, 3}) {
      const std::string n = std::to_string(i);
      cluster.Start({.id = "j" + n, .ring = {"h" + n, "h" + std::to_string(i + 3)}, .compute_s = 0.1, .bytes = 5e6}, 0);
      cluster.Run(0.1);
      cluster.Probe("j" + n);
    }
  }
  static CoreOptions Options() {
    CoreOptions options;
    options.planning.quick_from = 4;
    options.joint.planning.paths = false;
    return options;
  }
  Core core;
  FakeCluster cluster;
};

TEST(CoreQuickPlan, ComesFirstAndAWholeOneFollowsWhereItMayHaveLeftSomething) {
  Site site;
  site.cluster.Run(10);
  const auto asked = Questions(site.cluster);
  ASSERT_FALSE(asked.empty());
  size_t whole = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i]->flows.size() < 4) continue;
    whole += !asked[i]->quick;
    if (!asked[i]->quick) {
      EXPECT_TRUE(i > 0 && asked[i - 1]->quick) << "a whole plan of many flows follows a quick one";
    }
  }
  EXPECT_GT(whole, 0U);
}

TEST(CoreQuickPlan, AWholePlanInTheMakingGivesWayToALinkThatChanges) {
  Site site;
  site.cluster.answers_whole_paths = false;
  for (int i = 0; i < 100 && (Questions(site.cluster).empty() || Questions(site.cluster).back()->flows.size() < 4 ||
                              Questions(site.cluster).back()->quick); ++i) {
    site.cluster.Run(0.1);
  }
  const size_t before = Questions(site.cluster).size();
  ASSERT_FALSE(Questions(site.cluster).back()->quick) << "a whole plan is in the making, and its answer does not come";
  site.cluster.SetRate("leaf1", "spine2", 10e6);
  site.cluster.SetRate("spine2", "leaf2", 10e6);
  site.cluster.Run(4);
  const auto asked = Questions(site.cluster);
  ASSERT_GT(asked.size(), before);
  EXPECT_TRUE(asked[before]->quick) << "the link is answered at once";
}

}  // namespace
}  // namespace weft::controller

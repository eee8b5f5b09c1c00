// Classes that links do not honour, against a simulated cluster whose links serve classes strictly or treat all alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::HasSubstr;

constexpr int kRaised = 26 << 2;

// Over the one spine, 100 Mbit/s: alone "big" takes 1.2 s + 0.4 s, "small" 0.6 s + 1.2 s.
const FakeJob kBig{.id = "big", .ring = {"h1", "h3"}, .compute_s = 1.2, .bytes = 5e6};
const FakeJob kSmall{.id = "small", .ring = {"h2", "h4"}, .compute_s = 0.6, .bytes = 15e6};

CoreOptions Options(std::vector<int32_t> shares) {
  CoreOptions options;
  options.joint.dscp = {26, 0};
  options.joint.shares = std::move(shares);
  return options;
}

JobSubmitted Submission(const std::string& id, int64_t gpus) {
  JobSubmitted submitted;
  submitted.spec.set_job_id(id);
  submitted.spec.set_gpus(gpus);
  return submitted;
}

std::vector<v1::Decision> Of(const Core& core, const std::string& kind) {
  std::vector<v1::Decision> found;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == kind) found.push_back(decision);
  }
  return found;
}

/// Both jobs over one spine; big is worth more and is raised.
void Start(FakeCluster& cluster) {
  cluster.measures_periods = true;
  cluster.RegisterAll();
  cluster.Send({.body = Submission("big", 8)});
  cluster.Send({.body = Submission("small", 1)});
  cluster.Run(0.5);
  cluster.Start(kBig, 0);
  cluster.Start(kSmall, 0);
  cluster.Run(0.3);
  cluster.Probe("big");
  cluster.Probe("small");
}

TEST(CoreClasses, AClassThatALinkDoesNotHonourIsWithdrawnWithinThirtySecondsAndTriedAgain) {
  for (const std::vector<int32_t>& shares : {std::vector<int32_t>{}, {75, 25}}) {
    Core core(Options(shares));
    FakeCluster cluster(core, 2, 1, 2);  // which treats all alike
    Start(cluster);
    while (Of(core, "class").empty() && cluster.now() < 60) cluster.Run(1);
    ASSERT_EQ(Of(core, "class").size(), 1u);
    const double raised_s = Of(core, "class")[0].time_s();
    while (Of(core, "inversion").empty() && cluster.now() < raised_s + 60) cluster.Run(1);
    const std::vector<v1::Decision> found = Of(core, "inversion");
    ASSERT_EQ(found.size(), 1u);
    EXPECT_LT(found[0].time_s(), raised_s + 30);
    EXPECT_EQ(found[0].job_id(), "big");
    EXPECT_THAT(found[0].reason(), HasSubstr("DSCP 26 is withdrawn for 60 s"));
    EXPECT_THAT(found[0].reason(), HasSubstr("does not honour it"));
    cluster.Run(1);
    EXPECT_EQ(cluster.TosOf("big", "h1"), 0);
    EXPECT_EQ(cluster.TosOf("big", "h3"), 0);
    cluster.Run(60);
    EXPECT_THAT(Of(core, "class").back().reason(), HasSubstr("DSCP 26 again"));
    EXPECT_EQ(cluster.TosOf("big", "h1"), kRaised);
    cluster.Run(40);
    ASSERT_EQ(Of(core, "inversion").size(), 2u);
    EXPECT_THAT(Of(core, "inversion")[1].reason(), HasSubstr("withdrawn for 120 s"));
  }
}

TEST(CoreClasses, AClassThatLinksHonourStays) {
  Core core(Options({}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.priorities = {kRaised};
  Start(cluster);
  cluster.Run(300);
  EXPECT_EQ(cluster.TosOf("big", "h1"), kRaised);
  EXPECT_TRUE(Of(core, "inversion").empty()) << Of(core, "inversion")[0].reason();
}

TEST(CoreClasses, WhoDoesNotMeetOthersLosesNothing) {
  Core core(Options({}));
  FakeCluster cluster(core, 2, 1, 2);
  Start(cluster);
  cluster.Run(20);
  cluster.Finish("small");
  const size_t before = Of(core, "inversion").size();
  cluster.Run(200);
  EXPECT_EQ(Of(core, "inversion").size(), before);
}

}  // namespace
}  // namespace weft::controller

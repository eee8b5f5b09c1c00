// Paths that all measured jobs are planned with, beside the plan of flows alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::HasSubstr;

// At 100 Mbit/s alone 0.5 s + 1 s each: on one spine they take 2.5 s, on two 1.5 s.
const FakeJob kOne{.id = "one", .ring = {"h1", "h4"}, .compute_s = 0.5, .bytes = 12.5e6};
const FakeJob kTwo{.id = "two", .ring = {"h2", "h5"}, .compute_s = 0.5, .bytes = 12.5e6};

std::string Reasons(const Core& core) {
  std::string text;
  for (const v1::Decision& decision : core.decisions()) text += fmt::format("{} {}: {}\n", decision.kind(), decision.job_id(), decision.reason());
  return text;
}

/// Both jobs on the first spine, where a hash has put them; nobody answers to questions of flows alone.
struct Crowded {
  explicit Crowded(CoreOptions options = {}) : core(options), cluster(core, 2, 2, 3) {
    cluster.measures_periods = true;
    cluster.answers_paths = false;
    cluster.RegisterAll();
    for (const FakeJob& job : {kOne, kTwo}) Open(job);
  }
  void Open(const FakeJob& job) {
    cluster.Start(job, 0);
    cluster.Run(0.3);
    cluster.Probe(job.id);
  }
  double Over(const FakeJob& job, int host, size_t spine) const { return cluster.Shares(job.id, job.ring[static_cast<size_t>(host)])[spine]; }

  Core core;
  FakeCluster cluster;
};

TEST(CoreMultiJobPaths, MeasuredJobsGetOutOfEachOthersWay) {
  Crowded crowded;
  crowded.cluster.Run(60);
  EXPECT_NEAR(crowded.cluster.Iteration("one", 15), 1.5, 0.05) << Reasons(crowded.core);
  EXPECT_NEAR(crowded.cluster.Iteration("two", 15), 1.5, 0.05);
  EXPECT_THAT(Reasons(crowded.core), HasSubstr("all jobs were planned together: flow"));
  EXPECT_THAT(Reasons(crowded.core), HasSubstr("GPU use of the 2 measured jobs"));
  const int64_t replans = crowded.core.counters().replans;
  crowded.cluster.Run(120);
  EXPECT_EQ(crowded.core.counters().replans, replans) << "and there they stay";
}

TEST(CoreMultiJobPaths, WhereTheyAreSwitchedOffNothingMoves) {
  CoreOptions options;
  options.joint.planning.paths = false;
  Crowded crowded(options);
  crowded.cluster.Run(60);
  EXPECT_EQ(crowded.Over(kOne, 0, 0), 1);
  EXPECT_EQ(crowded.Over(kTwo, 0, 0), 1);
  EXPECT_EQ(crowded.core.FindJob("one")->joint().model(), "measured");
}

TEST(CoreMultiJobPaths, ObservedJobsAreToldWhatWouldBeDone) {
  CoreOptions options;
  options.mode = v1::MODE_OBSERVE;
  Crowded crowded(options);
  crowded.cluster.Run(60);
  EXPECT_EQ(crowded.Over(kOne, 0, 0), 1);
  EXPECT_EQ(crowded.Over(kTwo, 0, 0), 1);
  std::string why;
  for (const char* job : {"one", "two"}) why += fmt::format("{}", fmt::join(crowded.core.FindJob(job)->joint().why(), "\n"));
  EXPECT_THAT(why, HasSubstr("go other ways than a hash has put them"));
  EXPECT_GT(crowded.core.outlook().gpu_use(), 0);
}

TEST(CoreMultiJobPaths, ThePlanOfFlowsAloneLeavesThemUntilAWayChanges) {
  Crowded crowded;
  crowded.cluster.Run(60);
  const double one = crowded.Over(kOne, 0, 0), two = crowded.Over(kTwo, 0, 0);
  ASSERT_NE(one, two) << "they share the spines";
  crowded.cluster.answers_paths = true;
  // The coming of another job calls for a plan of flows alone.
  crowded.cluster.Start({.id = "three", .ring = {"h3", "h6"}, .compute_s = 0.1, .bytes = 2e6}, 0);
  crowded.cluster.Run(0.3);
  crowded.cluster.Probe("three");
  crowded.cluster.Run(3);
  EXPECT_EQ(crowded.Over(kOne, 0, 0), one);
  EXPECT_EQ(crowded.Over(kTwo, 0, 0), two);
  for (const char* leaf : {"leaf1", "leaf2"}) {
    crowded.cluster.SetRate(leaf, "spine2", 10e6);
    crowded.cluster.SetRate("spine2", leaf, 10e6);
  }
  crowded.cluster.Run(8);
  EXPECT_GT(crowded.Over(kOne, 0, 0), 0.7) << Reasons(crowded.core);
  EXPECT_GT(crowded.Over(kTwo, 0, 0), 0.7);
}

// The flow that is measured longest has 1 s of its job's 1.5 s; what the rest is, a job of one burst and one of several tell apart.
TEST(CoreMultiJobPaths, WhereFlowsSendInTurnsNoMoreIsComputedThanPlanned) {
  for (const planner::Strategy& strategy : {planner::Strategy{.dp = 2, .pp = 2}, planner::Strategy{.dp = 4}}) {
    Core core((CoreOptions()));
    FakeCluster cluster(core, 2, 2, 3);
    cluster.measures_periods = true;
    cluster.RegisterAll();
    JobSubmitted submitted;
    submitted.spec.set_job_id(kOne.id);
    submitted.spec.set_measured_compute_s(0.2);
    *submitted.plan.mutable_strategy() = proto::ToProto(strategy);
    cluster.Send({.body = submitted});
    cluster.Start(kOne, 0);
    cluster.Run(0.3);
    cluster.Probe(kOne.id);
    cluster.Run(30);
    const v1::MultiJobDecision joint = core.FindJob(kOne.id)->joint();
    ASSERT_EQ(joint.model(), "measured");
    EXPECT_NEAR(joint.release_s(), strategy.pp > 1 ? 0.2 : 0.5, 0.05);
  }
}

}  // namespace
}  // namespace weft::controller

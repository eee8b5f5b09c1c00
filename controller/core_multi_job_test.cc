// All jobs planned together by the core, against a simulated cluster whose links serve classes strictly and whose senders
// keep their time windows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <variant>

#include "controller/core.h"
#include "controller/planned_traffic.h"
#include "controller/testing/fake_cluster.h"
#include "proto/operation_codec.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRaised = 26 << 2;

// Over the one spine, 100 Mbit/s: alone "big" takes 1.2 s + 0.4 s, "small" 0.6 s + 1.2 s.
const FakeJob kBig{.id = "big", .ring = {"h1", "h3"}, .compute_s = 1.2, .bytes = 5e6};
const FakeJob kSmall{.id = "small", .ring = {"h2", "h4"}, .compute_s = 0.6, .bytes = 15e6};

CoreOptions Options(std::vector<int32_t> dscp) {
  CoreOptions options;
  options.joint.dscp = std::move(dscp);
  return options;
}

JobSubmitted Submission(const std::string& id, int64_t gpus) {
  JobSubmitted submitted;
  submitted.spec.set_job_id(id);
  submitted.spec.set_gpus(gpus);
  return submitted;
}

std::vector<std::string> ReasonsOf(const Core& core, const std::string& kind) {
  std::vector<std::string> reasons;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == kind) reasons.push_back(decision.job_id() + ": " + decision.reason());
  }
  return reasons;
}

template <typename T>
std::vector<T> Of(const std::vector<Action>& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const auto* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// Both jobs over one spine, with agents that measure.
void Start(FakeCluster& cluster, const FakeJob& a, const FakeJob& b, int64_t gpus_a, int64_t gpus_b) {
  cluster.measures_periods = true;
  cluster.RegisterAll();
  cluster.Send({.body = Submission(a.id, gpus_a)});
  cluster.Send({.body = Submission(b.id, gpus_b)});
  cluster.Run(0.5);
  cluster.Start(a, 0);
  cluster.Start(b, 0);
  cluster.Run(0.3);
  cluster.Probe(a.id);
  cluster.Probe(b.id);
}

// A chunk takes 10 ms at 100 Mbit/s: senders wait for more to send, and their bursts are over before the wire is done.
TEST(CoreMultiJob, BurstsInPiecesAreAsLongAsTheWireIsBusy) {
  Core core(Options({0}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.burst_share = 0.1;
  Start(cluster, kBig, kSmall, 4, 4);
  cluster.Run(40);
  for (const FakeJob* job : {&kBig, &kSmall}) {
    const v1::MultiJobDecision joint = core.FindJob(job->id)->joint();
    ASSERT_EQ(joint.model(), "measured");
    EXPECT_NEAR(joint.release_s(), job->compute_s, 0.1 * job->compute_s) << job->id;
    EXPECT_LE(joint.bound_s(), cluster.Iteration(job->id, 10) * 1.02) << job->id;
  }
}

TEST(CoreMultiJob, ClassOfTheIntensiveJobReachesItsPolicy) {
  Core core(Options({26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.priorities = {kRaised};
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(60);
  EXPECT_EQ(cluster.TosOf("big", "h1"), kRaised);
  EXPECT_EQ(cluster.TosOf("big", "h3"), kRaised);
  EXPECT_EQ(cluster.TosOf("small", "h2"), 0);
  EXPECT_NEAR(cluster.Iteration("big", 15), 1.6, 0.05) << "as fast as alone";
  const auto classes = ReasonsOf(core, "class");
  ASSERT_EQ(classes.size(), 1u);
  EXPECT_THAT(classes[0], HasSubstr("big: class 0 of 2 (DSCP 26) in place of the default"));
  EXPECT_THAT(classes[0], HasSubstr("meets small (intensity"));
}

TEST(CoreMultiJob, StatusHasModelReasonsBoundAndGap) {
  Core core(Options({26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.priorities = {kRaised};
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(60);
  const v1::MultiJobDecision joint = core.FindJob("small")->joint();
  EXPECT_EQ(joint.model(), "measured");
  EXPECT_EQ(joint.traffic_class(), 1);
  EXPECT_EQ(joint.classes(), 2);
  EXPECT_NEAR(joint.compute_s(), 0.6, 0.15);
  EXPECT_NEAR(static_cast<double>(joint.bytes()), 30e6, 2e6);
  EXPECT_NEAR(joint.bound_s(), 1.8, 0.15);
  EXPECT_GE(joint.gap(), 0);
  ASSERT_EQ(joint.meets_size(), 1);
  EXPECT_EQ(joint.meets(0).job_id(), "big");
  EXPECT_GT(joint.meets(0).intensity(), joint.intensity());
  EXPECT_THAT(Joined(joint.why()), HasSubstr("after jobs to which going first is worth more"));
  EXPECT_THAT(Joined(joint.why()), HasSubstr("bound"));
  EXPECT_EQ(core.outlook().jobs(), 2);
  EXPECT_GT(core.outlook().gpu_use(), core.outlook().gpu_use_default());
  EXPECT_LE(core.outlook().gpu_use(), core.outlook().gpu_use_bound() * (1 + 1e-6));
}

TEST(CoreMultiJob, WithOneClassNothingIsMarkedAndTheBoundIsStillReported) {
  Core core(Options({0}));
  FakeCluster cluster(core, 2, 1, 2);
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(30);
  EXPECT_EQ(cluster.TosOf("big", "h1"), 0);
  EXPECT_TRUE(ReasonsOf(core, "class").empty());
  EXPECT_GT(core.outlook().gpu_use_bound(), 0);
  EXPECT_THAT(Joined(core.FindJob("big")->joint().why()), HasSubstr("the fabric has one class"));
}

TEST(CoreMultiJob, ObservedJobsAreExplainedAndNotMarked) {
  CoreOptions options = Options({26, 0});
  options.mode = v1::MODE_OBSERVE;
  Core core(options);
  FakeCluster cluster(core, 2, 1, 2);
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(40);
  EXPECT_EQ(cluster.TosOf("big", "h1"), 0);
  EXPECT_EQ(core.FindJob("big")->joint().traffic_class(), 0) << "what would be decided";
  cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  cluster.Run(10);
  EXPECT_EQ(cluster.TosOf("big", "h1"), kRaised);
}

TEST(CoreMultiJob, SlowLinkMovesPathsAtOnceAndThePlanFollowsIt) {
  Core core(Options({26, 0}));
  FakeCluster cluster(core, 2, 2, 2);
  cluster.priorities = {kRaised};
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(40);
  ASSERT_EQ(core.FindJob("big")->joint().model(), "measured");
  EXPECT_EQ(core.FindJob("big")->joint().meets_size(), 0) << "on two spines they do not meet";
  const double slowed_s = cluster.now();
  for (const char* leaf : {"leaf1", "leaf2"}) {
    cluster.SetRate(leaf, "spine2", 20e6);
    cluster.SetRate("spine2", leaf, 20e6);
  }
  cluster.Run(60);
  EXPECT_FALSE(ReasonsOf(core, "capacity").empty());
  const v1::MultiJobDecision joint = core.FindJob("big")->joint();
  EXPECT_GT(joint.decided_s(), slowed_s);
  ASSERT_EQ(joint.meets_size(), 1) << "most of it goes over the good spine now";
  EXPECT_GT(core.FindJob("small")->joint().gap(), 0.05) << "which their hosts' cables would not call for";
  EXPECT_LT(cluster.Iteration("big", 15), 2.0);
}

TEST(CoreMultiJob, ReleasedJobIsForgotten) {
  Core core(Options({26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(40);
  cluster.Finish("small");
  cluster.Send({.body = JobReleased{"small"}});
  cluster.Run(20);
  EXPECT_EQ(core.outlook().jobs(), 1);
  EXPECT_EQ(cluster.TosOf("big", "h1"), 0) << "it meets nobody any more";
  EXPECT_FALSE(core.FindJob("small")->has_joint());
}

TEST(CoreMultiJob, AnswersThatNobodyAskedForAreIgnored) {
  Core core(Options({26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.RegisterAll();
  const int64_t before = core.ignored();
  cluster.Send({.body = JobsPlanned{7, std::make_shared<const planner::MultiJobPlan>()}});
  cluster.Send({.body = JobsPlanned{7, nullptr}});
  EXPECT_EQ(core.ignored(), before + 2);
  EXPECT_EQ(core.counters().multi_job_plans, 0);
}

JobsPlanned AnswerTo(const PlanJobs& question) {
  return {question.digest, std::make_shared<const planner::MultiJobPlan>(planner::PlanMultiJob(*question.problem))};
}

TEST(CoreMultiJob, AnswersToOldQuestionsAreIgnored) {
  Core core(Options({26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  Start(cluster, kBig, kSmall, 8, 1);
  cluster.Run(40);
  const int64_t plans = core.counters().multi_job_plans;
  cluster.answers = false;
  cluster.actions.clear();
  for (const char* leaf : {"leaf1", "leaf2"}) {
    cluster.SetRate(leaf, "spine1", 50e6);
    cluster.SetRate("spine1", leaf, 50e6);
  }
  cluster.Run(60);
  ASSERT_EQ(Of<PlanJobs>(cluster.actions).size(), 1u) << "one question waits for its answer";
  cluster.Run(120);
  const std::vector<PlanJobs> questions = Of<PlanJobs>(cluster.actions);
  ASSERT_EQ(questions.size(), 2u) << "the first counts as lost";
  ASSERT_NE(questions[0].digest, questions[1].digest);
  ASSERT_EQ(questions[0].problem->jobs.size(), questions[1].problem->jobs.size());
  const int64_t before = core.ignored();
  cluster.Send({.body = AnswerTo(questions[0])});
  EXPECT_EQ(core.ignored(), before + 1);
  EXPECT_EQ(core.counters().multi_job_plans, plans);
  cluster.Send({.body = AnswerTo(questions[1])});
  EXPECT_EQ(core.ignored(), before + 1);
  EXPECT_EQ(core.counters().multi_job_plans, plans + 1);
}

// Alone 1.2 s + 0.4 s each: their bursts have room beside each other, and without windows they fall on each other.
const FakeJob kLeft{.id = "left", .ring = {"h1", "h3"}, .compute_s = 1.2, .bytes = 5e6};
const FakeJob kRight{.id = "right", .ring = {"h2", "h4"}, .compute_s = 1.2, .bytes = 5e6};

/// A cluster in which windows may be given, run until "right" has one.
struct Shifted {
  Shifted() : core(WithShifts()), cluster(core, 2, 1, 2) {
    Start(cluster, kLeft, kRight, 1, 1);
    for (int i = 0; i < 120 && !HasWindows(); ++i) cluster.Run(0.5);
  }
  static CoreOptions WithShifts() {
    CoreOptions options = Options({0});
    options.joint.shifts = true;
    return options;
  }
  bool HasWindows() const {
    return cluster.HasWindow("right", "h2") && cluster.HasWindow("right", "h4") && cluster.HasWindow("left", "h1");
  }
  bool HasAnyWindow() const {
    return cluster.HasWindow("right", "h2") || cluster.HasWindow("right", "h4") || cluster.HasWindow("left", "h1") ||
           cluster.HasWindow("left", "h3");
  }
  std::string Reasons() const { return fmt::format("{}", fmt::join(ReasonsOf(core, "shift"), "\n")); }

  Core core;
  FakeCluster cluster;
};

TEST(CoreMultiJob, WindowsAreGivenAndTakenBackWhenThePeriodIsLost) {
  Shifted shifted;
  ASSERT_TRUE(shifted.HasWindows());
  EXPECT_THAT(shifted.Reasons(), HasSubstr("right: bursts may begin for "));
  EXPECT_GT(shifted.core.FindJob("right")->joint().window_s(), 0);
  shifted.cluster.measures_periods = false;
  shifted.cluster.Run(45);  // the first twenty periods prove nothing
  EXPECT_FALSE(shifted.HasAnyWindow());
  EXPECT_THAT(shifted.Reasons(), HasSubstr("right: time window taken back: it has no steady period any more, the window"));
}

TEST(CoreMultiJob, WindowsOfJobsThatAreNotModelledAnyMoreAreTakenBackAtTheNextPlan) {
  Shifted shifted;
  ASSERT_TRUE(shifted.HasWindows());
  shifted.cluster.measures_periods = false;
  shifted.cluster.Send({.body = Submission("third", 1)});
  shifted.cluster.AddFlow("right", "h2", "h4");
  shifted.cluster.Run(8);  // within the time in which rhythms are not judged
  EXPECT_FALSE(shifted.cluster.HasWindow("right", "h2"));
  EXPECT_THAT(shifted.Reasons(), HasSubstr("right: time window taken back: not modelled: "));
}

TEST(CoreMultiJob, WindowsThatHostsKeepWhileObservedAreTakenBackOnceEnforced) {
  Shifted shifted;
  ASSERT_TRUE(shifted.HasWindows());
  shifted.cluster.Send({.body = ModeSet{v1::MODE_OBSERVE}});
  shifted.cluster.measures_periods = false;
  shifted.cluster.Run(30);
  EXPECT_TRUE(shifted.HasWindows()) << "nothing is pushed";
  EXPECT_THAT(shifted.Reasons(), Not(HasSubstr("taken back")));
  shifted.cluster.actions.clear();
  shifted.cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  EXPECT_EQ(Of<PushPolicy>(shifted.cluster.actions).size(), 4u) << "of both jobs to both of their hosts";
  shifted.cluster.Run(3);
  EXPECT_FALSE(shifted.HasAnyWindow());
}

// Its bytes go where the job's others don't, so that the job stays as fast as its windows come.
TEST(CoreMultiJob, FlowsThatOpenLaterGetWindowsLikeTheOthers) {
  Core core(Shifted::WithShifts());
  FakeCluster cluster(core, 2, 1, 3);
  Start(cluster, {.id = "left", .ring = {"h1", "h4"}, .compute_s = 1.2, .bytes = 5e6},
        {.id = "right", .ring = {"h2", "h5"}, .compute_s = 1.2, .bytes = 5e6}, 1, 1);
  for (int i = 0; i < 120 && !cluster.HasWindow("right", "h2"); ++i) cluster.Run(0.5);
  ASSERT_TRUE(cluster.HasWindow("right", "h2"));
  cluster.AddFlow("right", "h3", "h1");
  cluster.Run(0.5);
  cluster.Probe("right");
  for (int i = 0; i < 160 && !cluster.HasWindow("right", "h3"); ++i) cluster.Run(0.5);
  EXPECT_TRUE(cluster.HasWindow("right", "h3")) << fmt::format("{}", fmt::join(ReasonsOf(core, "shift"), "\n"));
  EXPECT_TRUE(cluster.HasWindow("right", "h2"));
}

/// Two stages of two replicas on h1 to h4, rank = replica + 2 stage: gradients hide, what goes between stages does not.
JobSubmitted TwoStages() {
  JobSubmitted submitted = Submission("big", 4);
  for (const char* host : {"h1", "h2", "h3", "h4"}) submitted.plan.add_rank_hosts(host);
  planner::OperationList list{.stages = 2, .micro_batches = 1, .ranks_per_stage = 2};
  const planner::Operation gradients{.what = "gradients", .kind = planner::OperationKind::kAllReduce, .pass = planner::OperationPass::kOnce,
                                     .communicator = planner::CommunicatorKind::kData, .group = {2, 1}, .bytes = 5e6,
                                     .algorithm = "ring", .hides_behind = "backward"};
  const planner::Operation sends{.what = "activations", .kind = planner::OperationKind::kSendReceive,
                                 .communicator = planner::CommunicatorKind::kPipeline, .group = {2, 2}, .bytes = 5e6, .algorithm = "send"};
  list.classes.push_back({.stages = {0, 1}, .operations = {gradients, sends}});
  *submitted.plan.mutable_operations() = proto::ToProto(list);
  return submitted;
}

// Rank 0 sends 2 (n-1)/n of 5 MB of gradients to its replica, and 5 MB of activations to the other stage.
TEST(PlannedTraffic, IsWhatTheListOfOperationsSays) {
  v1::JobPlan plan = TwoStages().plan;
  EXPECT_TRUE(PlannedTraffic(plan).empty()) << "without a strategy";
  *plan.mutable_strategy() = proto::ToProto(planner::Strategy{.dp = 2, .pp = 2});
  const auto sent = PlannedTraffic(plan);
  EXPECT_EQ(sent.at({"h1", "h2"}), 5e6);
  EXPECT_EQ(sent.at({"h1", "h3"}), 5e6);
  EXPECT_FALSE(sent.contains({"h1", "h4"}));
  plan.set_rank_hosts(2, "h1");
  EXPECT_FALSE(PlannedTraffic(plan).contains({"h1", "h3"})) << "what stays on a host crosses no link";
  plan.mutable_rank_hosts()->RemoveLast();
  EXPECT_TRUE(PlannedTraffic(plan).empty()) << "a rank without a host";
}

TEST(CoreMultiJob, AStrategyThatIsPlannedIsModelledBeforeItIsMeasured) {
  Core core(Options({46, 26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.RegisterAll();
  JobSubmitted submitted = TwoStages();
  *submitted.plan.mutable_strategy() = proto::ToProto(planner::Strategy{.dp = 2, .pp = 2});
  submitted.plan.mutable_predicted()->set_iteration_s(2);
  submitted.plan.mutable_predicted()->set_exposed_communication_s(0.5);
  cluster.Send({.body = submitted});
  cluster.Start({.id = "big", .ring = {"h1", "h3"}, .compute_s = 1.2, .bytes = 5e6}, 0);
  cluster.Run(0.3);
  cluster.Probe("big");
  cluster.Run(10);
  const v1::MultiJobDecision joint = core.FindJob("big")->joint();
  EXPECT_EQ(joint.model(), "plan");
  EXPECT_GT(joint.bytes(), 0);
}

TEST(CoreMultiJob, WhatAPassWaitsForGoesBeforeWhatHides) {
  Core core(Options({46, 26, 0}));
  FakeCluster cluster(core, 2, 1, 2);
  cluster.measures_periods = true;
  cluster.RegisterAll();
  cluster.Send({.body = TwoStages()});
  cluster.Start({.id = "big", .ring = {"h1", "h3"}, .compute_s = 1.2, .bytes = 5e6}, 0);
  cluster.AddFlow("big", "h1", "h2", 7, 0, 1);
  cluster.AddFlow("big", "h1", "h3", 8, 0, 2);
  cluster.Run(0.3);
  cluster.Probe("big");
  cluster.Run(40);
  const v1::JobStatus status = *core.FindJob("big");
  ASSERT_EQ(status.communicators_size(), 2);
  EXPECT_EQ(status.communicators(0).kind(), "data");
  EXPECT_TRUE(status.communicators(0).slack());
  EXPECT_EQ(status.communicators(1).kind(), "pipeline");
  EXPECT_EQ(status.communicators(1).planned_bytes(), 10e6);
  EXPECT_NEAR(status.communicators(1).measured_bytes(), 5e6, 0.1e6) << "one of its two directions has a flow here";
  ASSERT_EQ(status.joint().traffic_class(), 2) << "alone it meets nobody";
  std::map<uint64_t, int> traffic_class;  // by flow
  for (const Action& action : cluster.actions) {
    const auto* push = std::get_if<PushPolicy>(&action);
    if (push == nullptr) continue;
    for (const v1::FlowPolicy& flow : push->policy.flows()) traffic_class[flow.flow()] = flow.traffic_class();
  }
  std::map<int, int> flows_of_class;
  for (const auto& [flow, tos] : traffic_class) ++flows_of_class[tos];
  EXPECT_EQ(flows_of_class[26 << 2], 1) << "the pipeline's";
  EXPECT_EQ(flows_of_class[46 << 2], 0);
}

}  // namespace
}  // namespace weft::controller

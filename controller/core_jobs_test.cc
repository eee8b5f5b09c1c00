// How jobs end, and what is forgotten when: by request, by silence, and after a life of the controller that saw none of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FakeJob kJob{.id = "j", .ring = {"h1", "h2"}};

template <typename T>
std::vector<T> Of(const std::vector<Action>& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* match = std::get_if<T>(&action)) found.push_back(*match);
  }
  return found;
}

CoreOptions Options() {
  CoreOptions options;
  options.rates.line_rate = MegabitsPerSecond(100);
  options.submitted_quiet_after = Seconds(20);
  options.stale_after = Seconds(5);
  options.epoch_kept = Seconds(60);
  return options;
}

JobSubmitted Submission(bool started = false) {
  JobSubmitted submitted;
  submitted.spec.set_job_id("j");
  submitted.spec.add_hosts("h1");
  submitted.spec.add_hosts("h2");
  submitted.started = started;
  return submitted;
}

std::vector<std::string> EndedOn(const std::vector<Action>& actions) {
  std::vector<std::string> hosts;
  for (const PushEnded& push : Of<PushEnded>(actions)) hosts.push_back(push.host);
  return hosts;
}

std::vector<std::string> Releases(const Core& core) {
  std::vector<std::string> reasons;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == "release") reasons.push_back(decision.reason());
  }
  return reasons;
}

TEST(CoreJobs, SubmittedJobThatFellSilentIsReleasedWithItsReason) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.RegisterAll();
  cluster.Send({.body = Submission()});
  cluster.Run(0.5);
  cluster.Start(kJob, 0);
  cluster.Run(2);
  EXPECT_EQ(Of<KeepStarted>(cluster.actions).size(), 1u);
  cluster.Finish("j");
  cluster.Run(15);
  EXPECT_EQ(core.FindJob("j")->state(), "running");
  cluster.Run(10);
  EXPECT_EQ(core.FindJob("j")->state(), "released");
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1", "h2"));
  EXPECT_THAT(Releases(core), ElementsAre(HasSubstr("no flow on any host for 20 s")));
  const auto kept = Of<KeepReleased>(cluster.actions);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].job_id, "j");
}

TEST(CoreJobs, FlowsBringASilentJobBackButNotAReleasedOne) {
  for (const bool on_request : {false, true}) {
    Core core(Options());
    FakeCluster cluster(core, 2, 2, 1);
    cluster.RegisterAll();
    cluster.Send({.body = Submission()});
    cluster.Start(kJob, 0);
    cluster.Run(2);
    cluster.Finish("j");
    if (on_request) cluster.Send({.body = JobReleased{"j"}});
    cluster.Run(25);
    ASSERT_EQ(core.FindJob("j")->state(), "released");
    cluster.Start(kJob, 0);
    cluster.Run(2);
    EXPECT_EQ(core.FindJob("j")->state(), on_request ? "released" : "running");
  }
}

TEST(CoreJobs, SubmittedJobMayWaitForItsFirstFlow) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.RegisterAll();
  cluster.Send({.body = Submission()});
  cluster.Run(60);
  EXPECT_EQ(core.FindJob("j")->state(), "managed");
}

TEST(CoreJobs, JobThatEndedWhileTheControllerWasAwayIsReleased) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.Send({.body = EpochKnown{"j", 4}});
  cluster.Send({.body = Submission(/*started=*/true)});  // as the journal replays it
  cluster.Register("h1", {{"j", 4}});
  cluster.Register("h2", {{"j", 4}});
  cluster.Run(15);
  EXPECT_EQ(core.FindJob("j")->state(), "managed");
  cluster.Run(10);
  EXPECT_EQ(core.FindJob("j")->state(), "released");
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1", "h2"));
}

TEST(CoreJobs, HostThatWasAwayAtTheEndIsToldOnce) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.Register("h1");
  cluster.Send({.body = Submission()});
  cluster.Send({.body = JobReleased{"j"}});
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1"));
  cluster.Register("h2");
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1", "h2"));
  cluster.Register("h2");
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1", "h2"));
}

TEST(CoreJobs, HeldJobThatNobodyKnowsIsEndedAfterAWhile) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.Register("h1", {{"old", 9}});
  cluster.Register("h2", {{"old", 8}});
  cluster.Run(4);
  EXPECT_TRUE(EndedOn(cluster.actions).empty());
  cluster.Run(3);
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1", "h2"));
  EXPECT_EQ(Of<PushEnded>(cluster.actions)[0].ended.job_id(), "old");
  EXPECT_THAT(Releases(core), ElementsAre(HasSubstr("h1 and 1 more hosts held a policy")));
}

TEST(CoreJobs, HeldJobThatStillSendsKeepsItsPolicyEverywhere) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 2);
  cluster.Register("h1", {{"j", 9}});
  cluster.Register("h2", {{"j", 9}});
  cluster.Register("h3", {{"j", 9}});  // holds a policy, but has no flow of its own any more
  cluster.Start(kJob, 0);
  cluster.Run(20);
  EXPECT_TRUE(EndedOn(cluster.actions).empty());
  EXPECT_TRUE(Releases(core).empty());
  cluster.Send({.body = JobReleased{"j"}});
  EXPECT_THAT(EndedOn(cluster.actions), ElementsAre("h1", "h2", "h3"));
}

TEST(CoreJobs, ReceivingProcessIsASignOfLife) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.Register("h1", {{"j", 9}});
  v1::HostSample sample;
  sample.set_time_s(1);
  v1::FlowIdentity* identity = sample.add_opened();
  identity->set_flow(77);
  identity->set_job_id("j");
  identity->set_local_address("addr-h1");
  identity->set_peer_address("addr-h2");
  cluster.Send({.body = SampleReceived{"h1", sample}});
  cluster.Run(20);
  EXPECT_TRUE(EndedOn(cluster.actions).empty());
}

TEST(CoreJobs, EpochIsForgottenOnceNeitherJobNorHostNeedsIt) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.Send({.body = EpochKnown{"gone", 5}});
  cluster.Send({.body = EpochKnown{"held", 6}});
  cluster.Send({.body = EpochKnown{"j", 7}});
  cluster.Send({.body = Submission()});
  cluster.Register("h1", {{"held", 6}});
  v1::HostSample sample;  // a process of "held" lives, but sends nothing
  sample.set_time_s(1);
  v1::FlowIdentity* identity = sample.add_opened();
  identity->set_flow(77);
  identity->set_job_id("held");
  identity->set_local_address("addr-h1");
  identity->set_peer_address("addr-h2");
  cluster.Send({.body = SampleReceived{"h1", sample}});
  cluster.Run(50);
  EXPECT_TRUE(Of<ForgetEpoch>(cluster.actions).empty());
  cluster.Run(30);
  auto forgotten = Of<ForgetEpoch>(cluster.actions);
  ASSERT_EQ(forgotten.size(), 1u);
  EXPECT_EQ(forgotten[0].job_id, "gone");
  EXPECT_EQ(core.FindJob("j")->policy_epoch(), 7);
  cluster.Send({.body = HostLost{"h1"}});
  cluster.Run(80);
  forgotten = Of<ForgetEpoch>(cluster.actions);
  ASSERT_EQ(forgotten.size(), 2u);
  EXPECT_EQ(forgotten[1].job_id, "held");
}

TEST(CoreJobs, ForgottenEpochIsLearntFromAProcessThatHasReadIt) {
  Core core(Options());
  FakeCluster cluster(core, 2, 2, 1);
  cluster.RegisterAll();
  v1::HostSample sample;
  sample.set_time_s(1);
  v1::FlowIdentity* identity = sample.add_opened();
  identity->set_flow(77);
  identity->set_job_id("j");
  identity->set_send(true);
  identity->set_local_address("addr-h1");
  identity->set_peer_address("addr-h2");
  v1::FlowCounters* counters = sample.add_counters();
  counters->set_flow(77);
  counters->set_send(true);
  counters->set_policy_epoch(41);
  cluster.Send({.body = SampleReceived{"h1", sample}});
  EXPECT_EQ(core.FindJob("j")->policy_epoch(), 41);
  const auto kept = Of<KeepEpoch>(cluster.actions);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].epoch, 41);
}

TEST(CoreJobs, ListLeavesTheModelOutAndOneJobHasIt) {
  Core core(Options());
  JobSubmitted submitted = Submission();
  submitted.spec.set_model_config_json("{\"model_type\": \"gpt2\"}");
  core.Handle({.body = submitted});
  EXPECT_EQ(core.Jobs().at(0).spec().model_config_json(), "");
  EXPECT_EQ(core.FindJob("j")->spec().model_config_json(), submitted.spec.model_config_json());
}

}  // namespace
}  // namespace weft::controller

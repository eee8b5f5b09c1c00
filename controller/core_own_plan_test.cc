// Jobs whose strategy their users gave, and jobs without any: both are managed like all others.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/core.h"
#include "controller/testing/fake_cluster.h"

namespace weft::controller {
namespace {

using testing::FakeCluster;
using testing::FakeJob;
using ::testing::Contains;
using ::testing::HasSubstr;

const FakeJob kJob{.id = "own", .ring = {"h1", "h2"}, .compute_s = 0.6, .bytes = 5e6};

/// As the controller makes it of a Megatron strategy: eight ranks on each of four hosts, pipeline over all.
JobSubmitted Given() {
  JobSubmitted submitted;
  submitted.spec.set_job_id("own");
  submitted.spec.set_framework("megatron");
  submitted.spec.mutable_given_strategy()->set_source("plan.json, plan 0");
  submitted.plan.set_origin("given");
  v1::Strategy& strategy = *submitted.plan.mutable_strategy();
  strategy.set_dp(2);
  strategy.set_tp(8);
  strategy.set_pp(2);
  strategy.set_text("dp=2 tp=8 pp=2");
  v1::Prediction& predicted = *submitted.plan.mutable_predicted();
  predicted.set_iteration_s(2);
  predicted.set_exposed_communication_s(0.5);
  predicted.set_gradient_bytes(1 << 30);
  return submitted;
}

JobSubmitted Managed() {
  JobSubmitted submitted;
  submitted.spec.set_job_id("own");
  submitted.planning_errors = {"no strategy fits: memory"};
  (*submitted.plan.mutable_environment())["WEFT_JOB_ID"] = "own";
  return submitted;
}

std::vector<std::string> ReasonsOf(const Core& core, const std::string& kind) {
  std::vector<std::string> reasons;
  for (const v1::Decision& decision : core.decisions()) {
    if (decision.kind() == kind) reasons.push_back(decision.reason());
  }
  return reasons;
}

/// How many of the policies that went out give a flow of the job more than one way.
int FlowsWithPaths(const std::vector<Action>& actions) {
  int flows = 0;
  for (const Action& action : actions) {
    const auto* push = std::get_if<PushPolicy>(&action);
    if (push == nullptr || push->policy.job_id() != "own") continue;
    for (const v1::FlowPolicy& flow : push->policy.flows()) flows += flow.lanes_size() > 1 ? 1 : 0;
  }
  return flows;
}

TEST(CoreOwnPlan, FlowsGetPathsAndTheJobIsModelledByWhatIsMeasured) {
  for (const JobSubmitted& submitted : {Given(), Managed()}) {
    Core core{CoreOptions()};
    FakeCluster cluster(core, 2, 2, 1);
    cluster.measures_periods = true;
    cluster.RegisterAll();
    cluster.Send({.body = submitted});
    cluster.Run(0.5);
    cluster.Start(kJob, 0);
    cluster.Run(0.3);
    cluster.Probe("own");
    cluster.Run(4);
    EXPECT_GT(FlowsWithPaths(cluster.actions), 0) << submitted.plan.origin();
    EXPECT_EQ(core.FindJob("own")->state(), "running");
    EXPECT_EQ(core.FindJob("own")->joint().model(), "none") << "nothing is made up of a plan that does not say it";
    cluster.Run(36);
    const v1::MultiJobDecision joint = core.FindJob("own")->joint();
    EXPECT_EQ(joint.model(), "measured") << submitted.plan.origin();
    EXPECT_NEAR(static_cast<double>(joint.bytes()), 10e6, 1e6) << "two flows of 5 MB per iteration";
    cluster.Send({.body = JobReleased{"own"}});
    EXPECT_EQ(core.FindJob("own")->state(), "released");
  }
}

TEST(CoreOwnPlan, ExplainSaysWhyItIsNotModelledYet) {
  Core core{CoreOptions()};
  FakeCluster cluster(core, 2, 2, 1);
  cluster.RegisterAll();
  cluster.Send({.body = Given()});
  cluster.Start(kJob, 0);
  cluster.Run(0.3);
  cluster.Probe("own");
  cluster.Run(8);
  const v1::MultiJobDecision joint = core.FindJob("own")->joint();
  EXPECT_THAT(joint.why(), Contains(HasSubstr("its plan has no list of operations")));
}

TEST(CoreOwnPlan, StateAndDecisionCallEachJobWhatItIs) {
  Core given{CoreOptions()};
  given.Handle({.body = Given()});
  EXPECT_EQ(given.FindJob("own")->state(), "planned");
  EXPECT_THAT(ReasonsOf(given, "plan"),
              Contains(HasSubstr("given by plan.json, plan 0: dp=2 tp=8 pp=2, 2 s per iteration predicted")));
  Core managed{CoreOptions()};
  managed.Handle({.body = Managed()});
  EXPECT_EQ(managed.FindJob("own")->state(), "managed");
  EXPECT_THAT(ReasonsOf(managed, "plan"), Contains(HasSubstr("managed, not planned: no strategy fits: memory")));
  JobSubmitted planned = Given();
  planned.plan.set_origin("search");
  Core searched{CoreOptions()};
  searched.Handle({.body = planned});
  EXPECT_EQ(searched.FindJob("own")->state(), "planned");
  EXPECT_THAT(ReasonsOf(searched, "plan"), Contains(HasSubstr("dp=2 tp=8 pp=2, bucket 0 bytes")));
}

std::vector<AdviseRestart> Asked(const std::vector<Action>& actions) {
  std::vector<AdviseRestart> asked;
  for (const Action& action : actions) {
    if (const auto* question = std::get_if<AdviseRestart>(&action)) asked.push_back(*question);
  }
  return asked;
}

// A running job that the controller has planned is looked at after each plan of all jobs; what comes of it is told once.
TEST(CoreAdvice, RunningJobsAreLookedAtAndTheAnswerIsKept) {
  JobSubmitted planned = Given();
  planned.spec.clear_given_strategy();
  planned.spec.set_model_config_json("a model");
  planned.plan.set_origin("search");
  planned.plan.add_rank_hosts("h1");
  planned.plan.add_rank_hosts("h2");
  Core core{CoreOptions()};
  FakeCluster cluster(core, 2, 2, 1);
  cluster.measures_periods = true;
  cluster.RegisterAll();
  cluster.Send({.body = planned});
  cluster.Run(0.5);
  cluster.Start(kJob, 0);
  cluster.Run(0.3);
  cluster.Probe("own");
  cluster.Run(20);
  const std::vector<AdviseRestart> asked = Asked(cluster.actions);
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked.front().spec.model_config_json(), "a model");
  EXPECT_EQ(asked.front().plan.rank_hosts_size(), 2);
  EXPECT_FALSE(asked.front().view.topology.links().empty());
  EXPECT_EQ(asked.size(), 1u) << "one at a time";
  JobAdvised answer{.job_id = "own", .fabric = "links give half", .advice = v1::RestartAdvice()};
  answer.advice->set_strategy("dp=4");
  answer.advice->set_iteration_now_s(2);
  answer.advice->set_iteration_then_s(1);
  answer.advice->set_pays_after_s(300);
  cluster.Send({.body = JobAdvised{.job_id = "another", .fabric = "", .advice = {}}});
  EXPECT_FALSE(core.FindJob("own")->has_advice());
  cluster.Send({.body = answer});
  EXPECT_EQ(core.FindJob("own")->advice().strategy(), "dp=4");
  EXPECT_THAT(ReasonsOf(core, "advice"), Contains(HasSubstr("restarted as dp=4 an iteration would take 1 s in place of 2 s, as links give half")));
  cluster.Send({.body = answer});
  EXPECT_EQ(ReasonsOf(core, "advice").size(), 1u) << "nobody had asked";
  // A link that gives less: the job is looked at again, with what was found last.
  cluster.actions.clear();
  cluster.Send({.body = JobReleased{"own"}});
  cluster.Run(2);
  EXPECT_TRUE(Asked(cluster.actions).empty());
  EXPECT_FALSE(core.FindJob("own")->has_advice()) << "it has ended";
}

// A list of operations is longer than all the rest of a plan: who asks for one job gets it, who asks for all does not.
TEST(CoreOwnPlan, OneJobHasItsOperationsAndAListOfJobsHasNone) {
  JobSubmitted submitted = Given();
  submitted.plan.mutable_operations()->set_stages(2);
  Core core{CoreOptions()};
  core.Handle({.body = submitted});
  EXPECT_EQ(core.FindJob("own")->plan().operations().stages(), 2);
  ASSERT_EQ(core.Jobs().size(), 1u);
  EXPECT_FALSE(core.Jobs().front().plan().has_operations());
  EXPECT_TRUE(core.Jobs().front().plan().has_strategy());
}

}  // namespace
}  // namespace weft::controller

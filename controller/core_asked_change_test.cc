// A strategy that somebody asks for while the job runs: sent at once, told with his name, and kept for as long as he says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/testing/listening_cluster.h"

namespace weft::controller {
namespace {

using testing::kNew;
using testing::kOld;
using testing::PlanOf;
using testing::ReshardOptions;
using testing::Running;
using testing::Submitted;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// To pp=2, as control_loop_reshard.cc has it priced.
void Ask(Running& run, double hold_s = 100) {
  StrategyAsked asked{.job_id = "job", .change = {}};
  asked.change.set_strategy("pp=2");
  asked.change.set_iteration_now_s(3);
  asked.change.set_iteration_then_s(4);
  asked.change.set_asked_by("operator \"ann\"");
  asked.change.set_hold_s(hold_s);
  *asked.change.mutable_plan() = PlanOf("pp=2", kNew);
  run.cluster.Send({.body = asked});
}

std::string Refused(const Core& core, const std::string& job, bool only_said = false) {
  const Result<AskedJob> asked = core.AskOf(job, only_said);
  EXPECT_FALSE(asked.has_value());
  return asked ? "" : asked.error().message();
}

TEST(CoreAskedChange, IsSentAtOnceAndToldWithWhoAskedThoughNothingIsGained) {
  Running run;
  run.Say(0, kOld);
  EXPECT_EQ(run.core.AskOf("job", false)->question.iteration_s, 3) << "rank 0 knows";
  Ask(run);
  EXPECT_EQ(run.Change().state(), "sent");
  EXPECT_THAT(run.Reasons("reshard"),
              Contains(HasSubstr("word 1: the ranks are told to run as pp=2, asked for by operator \"ann\": an iteration takes 4 s in "
                                 "place of 3 s")));
  EXPECT_EQ(run.Told("h1", "WEFT_RESHARD_EPOCH"), "1");
  EXPECT_THAT(Refused(run.core, "job"), HasSubstr("word 1 to run as pp=2 is not answered yet"));
  run.Say(1, kNew);
  EXPECT_EQ(run.Change().state(), "followed");
  EXPECT_EQ(run.Kept()->change().asked_by(), "operator \"ann\"") << "the journal has it";
  EXPECT_THAT(run.Reasons("reshard").back(),
              HasSubstr("asked for by operator \"ann\"; no other strategy by the controller itself for 100 s"));
}

// Without a hold another strategy would be taken 20 s after a change (reshard.retry).
TEST(CoreAskedChange, TheControllerUndoesNothingUntilTheHoldIsOver) {
  for (const double hold : {0.0, 100.0}) {
    Running run;
    run.Say(0, kOld);
    run.Advise("", false);
    run.cluster.Run(5);
    Ask(run, hold);
    run.Say(1, kNew);
    run.Advise("tp=2");
    run.cluster.Run(60);
    EXPECT_EQ(run.Change().epoch(), hold > 0 ? 1 : 2);
    if (hold > 0) run.cluster.Run(60);
    EXPECT_EQ(run.Change().epoch(), 2);
    EXPECT_EQ(run.Change().asked_by(), "") << "its own again";
  }
}

TEST(CoreAskedChange, WhatRanBeforeIsKeptToGoBackTo) {
  Running run;
  run.Say(0, kOld);
  EXPECT_FALSE(run.core.AskOf("job", false)->before.has_value());
  Ask(run);
  run.Say(1, kNew);
  ASSERT_TRUE(run.core.AskOf("job", false)->before.has_value());
  EXPECT_EQ(run.core.AskOf("job", false)->before->strategy().text(), "dp=2");
  EXPECT_EQ(run.core.AskOf("job", false)->before->arguments(1), fmt::format("{:016x}", kOld));
  EXPECT_FALSE(run.Change().has_before()) << "lists of jobs leave it out";
  // A word that comes to nothing takes nothing away.
  run.cluster.Run(1);
  Ask(run);
  run.Say(2, kNew, "no");
  EXPECT_EQ(run.core.AskOf("job", false)->before->strategy().text(), "dp=2");
  EXPECT_THAT(run.Reasons("reshard").back(),
              HasSubstr("asked for by operator \"ann\" is taken back: no; not sent again unless somebody asks"));
}

TEST(CoreAskedChange, HoldsAfterARestartToo) {
  Running run;
  run.Say(0, kOld);
  Ask(run);
  run.Say(1, kNew);
  JobSubmitted kept = Submitted();
  kept.plan = run.Kept().value();
  kept.started = true;
  Core next(ReshardOptions());
  next.Handle({.body = kept});
  EXPECT_EQ(next.FindJob("job")->plan().change().hold_s(), 100);
  EXPECT_THAT(Refused(next, "job"), HasSubstr("it is planned, expected a running one"));
}

TEST(CoreAskedChange, IsRefusedWithTheReasonWhereRanksCannotBeTold) {
  Running run;
  EXPECT_EQ(Refused(run.core, "another"), "no job \"another\"");
  EXPECT_THAT(Refused(run.core, "job"), HasSubstr("job \"job\": it was not submitted with reshard: on"));
  Ask(run);
  EXPECT_EQ(run.core.ignored(), 1) << "who tells the core without looking is not heard";
  EXPECT_FALSE(run.core.FindJob("job")->plan().has_change());
  run.Say(0, 0x33);
  EXPECT_THAT(Refused(run.core, "job"), HasSubstr("its ranks run program 0000000000000033, expected 0000000000000011"));
  run.Say(0, kOld);
  run.cluster.Send({.body = ModeSet{v1::MODE_OBSERVE}});
  EXPECT_THAT(Refused(run.core, "job"), HasSubstr("mode observe: nothing is sent to ranks"));
  EXPECT_TRUE(run.core.AskOf("job", true).has_value()) << "what it would come to may be asked";
  run.cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  EXPECT_TRUE(run.core.AskOf("job", false).has_value());
  run.cluster.Send({.body = JobReleased{"job"}});
  EXPECT_THAT(Refused(run.core, "job"), HasSubstr("it is released"));
}

// A job that was submitted with reshard: on, whose rank 0 nobody has heard yet; and one with a strategy of its user's.
TEST(CoreAskedChange, OthersJobsAreToldApart) {
  Core core(ReshardOptions());
  testing::FakeCluster cluster(core, 2, 2, 1);
  cluster.RegisterAll();
  JobSubmitted on = Submitted();
  on.spec.set_reshard(true);
  cluster.Send({.body = on});
  cluster.Start({.id = "job", .ring = {"h1", "h2"}}, 0);
  cluster.Run(1);
  EXPECT_THAT(Refused(core, "job"), HasSubstr("its rank 0 has not said yet what it runs"));
  JobSubmitted given = Submitted();
  given.spec.set_job_id("given");
  given.plan.set_origin("given");
  cluster.Send({.body = given});
  EXPECT_THAT(Refused(core, "given"), HasSubstr("expected framework: weft-train, and none given"));
}

}  // namespace
}  // namespace weft::controller

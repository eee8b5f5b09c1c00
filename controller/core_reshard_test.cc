// A job whose ranks take another strategy while they run: what is sent, when, and what becomes of it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/testing/listening_cluster.h"

namespace weft::controller {
namespace {

using testing::kNew;
using testing::kOld;
using testing::ReshardOptions;
using testing::Running;
using testing::Submitted;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kNewWords = fmt::format("--program-digest {:016x}", kNew);
const std::string kOldWords = fmt::format("--program-digest {:016x}", kOld);

TEST(CoreReshard, AWordIsSentAfterTheAdviceHasHeldAndWhatTheRanksRunIsThePlan) {
  Running run;
  EXPECT_EQ(run.Asked(), 0u) << "nobody listens";
  run.Say(0, kOld);
  run.Advise("pp=2");
  EXPECT_EQ(run.LastAsked().iteration_s, 3) << "rank 0 knows";
  run.cluster.Run(2);
  EXPECT_THAT(run.Reasons("reshard"), IsEmpty()) << "it may be gone again in a moment";
  run.cluster.Run(3);
  ASSERT_THAT(run.Reasons("reshard"),
              Contains(HasSubstr("word 1: the ranks are told to run as pp=2: an iteration takes 1.5 s in place of 3 s")));
  for (const char* host : {"h1", "h2"}) {
    EXPECT_EQ(run.Told(host, "WEFT_RESHARD_EPOCH"), "1");
    EXPECT_EQ(run.Told(host, "WEFT_ARGUMENTS"), kNewWords);
  }
  EXPECT_EQ(run.Change().state(), "sent");
  EXPECT_EQ(run.core.FindJob("job")->plan().strategy().text(), "dp=2") << "not yet";
  EXPECT_EQ(run.Kept()->change().plan().strategy().text(), "pp=2") << "a controller that dies now knows what it has said";
  run.Say(1, kNew);
  EXPECT_EQ(run.core.FindJob("job")->plan().strategy().text(), "pp=2");
  EXPECT_EQ(run.Change().state(), "followed");
  EXPECT_FALSE(run.Change().has_plan());
  EXPECT_EQ(run.Kept()->strategy().text(), "pp=2");
  EXPECT_EQ(run.Told("h1", "WEFT_ARGUMENTS"), kNewWords) << "a launch from now on is of the new plan";
  EXPECT_THAT(run.Reasons("reshard"), Contains(HasSubstr("the ranks run as pp=2 from now on, by word 1")));
  run.cluster.Run(100);
  EXPECT_EQ(run.Reasons("reshard").size(), 2u) << "nothing else was advised";
}

// A link that the new strategy does not fill counts as whole again after a while: the old one then looks better.
TEST(CoreReshard, AStrategyThatWasLeftIsNotGoneBackToSoon) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.Say(1, kNew);
  ASSERT_EQ(run.Change().state(), "followed");
  run.Advise("dp=2");
  run.cluster.Run(60);
  EXPECT_EQ(run.Change().epoch(), 1) << "retry is 20 s, and for the way back four times that";
  run.cluster.Run(30);
  EXPECT_EQ(run.Change().epoch(), 2);
}

TEST(CoreReshard, ARefusedWordIsTakenBackAndSentAgainAfterATimeThatDoubles) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.Say(1, kOld, "replicas that differ\x1b[2J");
  EXPECT_EQ(run.Change().state(), "refused");
  EXPECT_THAT(run.Reasons("reshard").back(), HasSubstr("replicas that differ"));
  EXPECT_THAT(run.Reasons("reshard").back(), ::testing::Not(HasSubstr("\x1b")));
  EXPECT_EQ(run.Told("h1", "WEFT_ARGUMENTS"), kOldWords);
  EXPECT_EQ(run.Told("h1", "WEFT_RESHARD_EPOCH"), "");
  run.Say(1, kOld, "again");
  EXPECT_EQ(run.Change().failures(), 1) << "told twice, counted once";
  run.cluster.Run(17);
  EXPECT_EQ(run.Change().epoch(), 1);
  run.cluster.Run(6);
  EXPECT_EQ(run.Change().epoch(), 2);
  EXPECT_EQ(run.Change().state(), "sent");
  run.Say(2, kOld, "still");
  run.cluster.Run(37);
  EXPECT_EQ(run.Change().epoch(), 2) << "twice as long";
  run.cluster.Run(70);  // the brake wants more gain of what was tried twice, for a minute or so
  EXPECT_EQ(run.Change().epoch(), 3);
}

TEST(CoreReshard, AWordWithoutAnAnswerIsGivenUpAndStillHeardOfLater) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.cluster.Run(62);
  EXPECT_EQ(run.Change().state(), "unanswered");
  EXPECT_THAT(run.Reasons("reshard").back(), HasSubstr("no answer in 60 s"));
  run.Say(1, kNew);
  EXPECT_EQ(run.Change().state(), "followed");
  EXPECT_EQ(run.core.FindJob("job")->plan().strategy().text(), "pp=2");
}

TEST(CoreReshard, WhatOthersSayOfTheJobIsIgnored) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.Say(1, kNew, "", "h2");                   // not rank 0's host
  run.Say(1, 0x33);                             // a program that nobody planned
  run.Say(5, kNew);                             // a word that was not sent
  EXPECT_EQ(run.Change().state(), "sent");
  EXPECT_EQ(run.core.FindJob("job")->plan().strategy().text(), "dp=2");
  run.Say(1, kOld, "no");
  run.Say(5, kOld);
  run.Say(int64_t{1} << 50, kOld);              // would have us count from there
  run.Say(-1, kOld);
  run.cluster.Run(25);
  EXPECT_EQ(run.Change().epoch(), 6) << "above all that the ranks may have seen";
}

TEST(CoreReshard, ModeObserveOnlySaysSo) {
  Running run(v1::MODE_OBSERVE);
  run.Say(0, kOld);
  run.Advise("pp=2");
  run.cluster.Run(20);
  EXPECT_THAT(run.Reasons("reshard"), IsEmpty());
  EXPECT_EQ(std::ranges::count_if(run.Reasons("would"), [](const std::string& r) { return r.find("run as pp=2") != r.npos; }), 1);
  EXPECT_THAT(run.core.Would("job"), Contains(HasSubstr("run as pp=2: an iteration takes 1.5 s in place of 3 s")));
  EXPECT_FALSE(run.core.FindJob("job")->plan().has_change()) << "nothing was sent";
  EXPECT_EQ(run.Told("h1", "WEFT_RESHARD_EPOCH"), "");
  run.cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  run.cluster.Run(3);
  EXPECT_EQ(run.Change().state(), "sent");
}

// Ranks would otherwise follow for as long as a word stands unanswered.
TEST(CoreReshard, ModeObserveTakesBackAWordThatWasSent) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.cluster.Send({.body = ModeSet{v1::MODE_OBSERVE}});
  EXPECT_EQ(run.Change().state(), "withdrawn");
  EXPECT_THAT(run.Reasons("reshard").back(), HasSubstr("word 1 to run as pp=2 is taken back: mode observe"));
  for (const char* host : {"h1", "h2"}) {
    EXPECT_EQ(run.Told(host, "WEFT_RESHARD_EPOCH"), "");
    EXPECT_EQ(run.Told(host, "WEFT_ARGUMENTS"), kOldWords);
  }
  EXPECT_EQ(run.Kept()->change().state(), "withdrawn");
  run.cluster.Run(70);
  EXPECT_EQ(run.Change().state(), "withdrawn");
  EXPECT_EQ(run.Change().failures(), 0) << "the ranks have not failed";
  run.cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  run.cluster.Run(3);
  EXPECT_EQ(run.Change().state(), "sent");
  EXPECT_EQ(run.Change().epoch(), 2);
}

TEST(CoreReshard, RanksThatHadMetBeforeModeObserveAreHeardOf) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.cluster.Send({.body = ModeSet{v1::MODE_OBSERVE}});
  run.cluster.Run(20);  // what enforce would do is told, and takes nothing away
  run.Say(1, kNew);
  EXPECT_EQ(run.Change().state(), "followed");
  EXPECT_EQ(run.core.FindJob("job")->plan().strategy().text(), "pp=2");
}

TEST(CoreReshard, ModeObserveForgetsNoFailure) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  run.Say(1, kOld, "no");
  run.cluster.Send({.body = ModeSet{v1::MODE_OBSERVE}});
  run.cluster.Run(17);
  EXPECT_THAT(run.core.Would("job"), IsEmpty()) << "enforce would wait as well";
  run.cluster.Run(6);
  EXPECT_THAT(run.core.Would("job"), Contains(HasSubstr("run as pp=2")));
  EXPECT_EQ(run.Change().state(), "refused");
  EXPECT_EQ(run.Change().failures(), 1);
  run.cluster.Send({.body = ModeSet{v1::MODE_ENFORCE}});
  run.cluster.Run(3);
  EXPECT_EQ(run.Change().epoch(), 2);
  EXPECT_THAT(run.core.Would("job"), IsEmpty());
}

// Killed between the word and the brake, or started with --mode observe.
TEST(CoreReshard, AControllerThatRestartsInModeObserveHandsOnNoWord) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  JobSubmitted kept = Submitted();
  kept.plan = run.Kept().value();
  kept.started = true;
  Core next(ReshardOptions(v1::MODE_OBSERVE));
  next.Handle({.body = kept});
  v1::Register message;
  message.set_host("h1");
  for (const Action& action : next.Handle({.body = HostRegistered{message}})) {
    const auto* push = std::get_if<PushLaunch>(&action);
    EXPECT_TRUE(push == nullptr || !push->launch.environment().contains("WEFT_RESHARD_EPOCH"));
  }
  for (int i = 1; i <= 20; ++i) next.Handle({.time = Seconds(0.1 * i), .body = Tick{}});
  EXPECT_EQ(next.FindJob("job")->plan().change().state(), "withdrawn");
}

// The journal has the plan with its word; rank 0's agent says again what runs.
TEST(CoreReshard, ARestartedControllerKnowsWhatItHasSaid) {
  Running run;
  ASSERT_NO_FATAL_FAILURE(run.IsToldToChange());
  JobSubmitted kept = Submitted();
  kept.plan = run.Kept().value();
  kept.started = true;
  Core next(ReshardOptions());
  next.Handle({.body = kept});
  v1::Register message;
  message.set_host("h1");
  bool told = false;
  for (const Action& action : next.Handle({.body = HostRegistered{message}})) {
    const auto* push = std::get_if<PushLaunch>(&action);
    told |= push != nullptr && push->launch.environment().at("WEFT_RESHARD_EPOCH") == "1";
  }
  EXPECT_TRUE(told);
  v1::HostSample sample;
  v1::StrategyNews& news = *sample.add_strategies();
  news.set_job_id("job");
  news.set_epoch(1);
  news.set_digest(kNew);
  next.Handle({.body = SampleReceived{"h1", sample}});
  EXPECT_EQ(next.FindJob("job")->plan().strategy().text(), "pp=2");
  EXPECT_EQ(next.FindJob("job")->plan().change().state(), "followed");
}

}  // namespace
}  // namespace weft::controller

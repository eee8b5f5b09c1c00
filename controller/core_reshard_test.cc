// A job whose ranks take another strategy while they run: what is sent, when, and what becomes of it.
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
using ::testing::IsEmpty;

constexpr uint64_t kOld = 0x11, kNew = 0x22;

v1::JobPlan PlanOf(const std::string& text, uint64_t digest) {
  v1::JobPlan plan;
  plan.set_origin("search");
  plan.mutable_strategy()->set_dp(2);
  plan.mutable_strategy()->set_text(text);
  for (const char* host : {"h1", "h2"}) plan.add_rank_hosts(host);
  for (const std::string& word : {std::string("--program-digest"), fmt::format("{:016x}", digest)}) plan.add_arguments(word);
  (*plan.mutable_environment())["WEFT_ARGUMENTS"] = fmt::format("--program-digest {:016x}", digest);
  return plan;
}

JobSubmitted Submitted() {
  JobSubmitted submitted;
  submitted.spec.set_job_id("job");
  submitted.spec.set_framework("weft-train");
  for (const char* host : {"h1", "h2"}) submitted.spec.add_hosts(host);
  submitted.spec.set_model_config_json("a model");
  submitted.plan = PlanOf("dp=2", kOld);
  return submitted;
}

CoreOptions Options(v1::Mode mode = v1::MODE_ENFORCE) {
  CoreOptions options;
  options.mode = mode;
  options.reshard_hold = Seconds(3);
  options.reshard_retry = Seconds(20);
  return options;
}

class Running {
 public:
  explicit Running(v1::Mode mode = v1::MODE_ENFORCE) : core(Options(mode)), cluster(core, 2, 2, 1) {
    cluster.measures_periods = true;
    cluster.RegisterAll();
    cluster.Send({.body = Submitted()});
    cluster.Start({.id = "job", .ring = {"h1", "h2"}, .compute_s = 0.6, .bytes = 5e6}, 0);
    cluster.Run(0.3);
    cluster.Probe("job");
    cluster.Run(5);
  }

  /// What rank 0 says, by way of `host`.
  void Say(int64_t epoch, uint64_t digest, const std::string& refused = "", const std::string& host = "h1") {
    v1::HostSample sample;
    v1::StrategyNews& news = *sample.add_strategies();
    news.set_job_id("job");
    news.set_epoch(epoch);
    news.set_digest(digest);
    news.set_iteration_s(3);
    news.set_refused(!refused.empty());
    news.set_reason(refused);
    cluster.Send({.body = SampleReceived{host, sample}});
  }

  /// Answers the question that is open, once there is one.
  void Advise(const std::string& strategy, bool change = true) {
    for (int i = 0; i < 300 && Asked() == answered_; ++i) cluster.Run(0.1);
    ASSERT_GT(Asked(), answered_) << "nobody asked";
    answered_ = Asked();
    JobAdvised answer{.job_id = "job", .fabric = "links give " + std::to_string(answered_), .advice = {}, .change = {}};
    if (change) {
      answer.change = v1::StrategyChange();
      answer.change->set_strategy(strategy);
      answer.change->set_iteration_now_s(2);
      answer.change->set_iteration_then_s(1);
      answer.change->set_pause_s(6);
      answer.change->set_moved_bytes(1 << 20);
      answer.change->set_fabric(answer.fabric);
      *answer.change->mutable_plan() = PlanOf(strategy, strategy == "dp=2" ? kOld : kNew);
    }
    cluster.Send({.body = answer});
  }

  /// To pp=2, by word 1.
  void IsToldToChange() {
    Say(0, kOld);
    Advise("pp=2");
    cluster.Run(5);
    ASSERT_EQ(Change().state(), "sent");
  }

  AdviseRestart LastAsked() const {
    AdviseRestart last;
    for (const Action& action : cluster.actions) {
      if (const auto* question = std::get_if<AdviseRestart>(&action)) last = *question;
    }
    return last;
  }
  size_t Asked() const {
    return static_cast<size_t>(std::count_if(cluster.actions.begin(), cluster.actions.end(), [](const Action& action) {
      const auto* question = std::get_if<AdviseRestart>(&action);
      return question != nullptr && question->listens;
    }));
  }
  std::vector<std::string> Reasons(const std::string& kind) const {
    std::vector<std::string> reasons;
    for (const v1::Decision& decision : core.decisions()) {
      if (decision.kind() == kind) reasons.push_back(decision.reason());
    }
    return reasons;
  }
  /// Of the newest launch environment that went to the host.
  std::string Told(const std::string& host, const std::string& name) const {
    std::string value;
    for (const Action& action : cluster.actions) {
      const auto* push = std::get_if<PushLaunch>(&action);
      if (push == nullptr || push->host != host) continue;
      const auto found = push->launch.environment().find(name);
      value = found == push->launch.environment().end() ? "" : found->second;
    }
    return value;
  }
  v1::StrategyChange Change() const { return core.FindJob("job")->plan().change(); }
  std::optional<v1::JobPlan> Kept() const {
    std::optional<v1::JobPlan> plan;
    for (const Action& action : cluster.actions) {
      if (const auto* keep = std::get_if<KeepPlan>(&action)) plan = keep->plan;
    }
    return plan;
  }

  Core core;
  FakeCluster cluster;

 private:
  size_t answered_ = 0;
};

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
  Core next(Options(v1::MODE_OBSERVE));
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
  Core next(Options());
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

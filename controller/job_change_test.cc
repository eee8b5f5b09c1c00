// Strategies that are asked for in a running job: what they come to, and why some are none.
#include "controller/job_change.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/launch_variable.h"
#include "controller/job_advice.h"
#include "controller/testing/small_job.h"
#include "formats/train_plan.h"

namespace weft::controller {
namespace {

using testing::Listening;
using testing::SmallOptions;
using testing::SmallView;
using ::testing::HasSubstr;

constexpr Seconds kCost{2};

planner::Strategy Wanted(const std::string& text) {
  planner::Strategy strategy = formats::ParseStrategyText(text).value();
  if (text.find("bucket_bytes") == text.npos) strategy.bucket_bytes = Bytes(0);
  return strategy;
}

std::string Refused(const AskedJob& asked, const std::optional<planner::Strategy>& wanted) {
  const auto change = PriceAsked(asked, wanted, SmallOptions(), kCost);
  EXPECT_FALSE(change.has_value());
  if (change) return "";
  EXPECT_EQ(change.error().code(), Code::kInvalidArgument);
  return change.error().message();
}

TEST(JobChange, WhatIsAskedForHasBothFiguresAndAPlanForTheRanks) {
  const AskedJob asked{.question = Listening(), .before = {}};
  const auto change = PriceAsked(asked, Wanted("dp=2,pp=2,zero_stage=1"), SmallOptions(), kCost);
  ASSERT_TRUE(change.has_value()) << change.error().message();
  EXPECT_THAT(change->strategy(), HasSubstr("dp=2 pp=2"));
  EXPECT_GT(change->iteration_now_s(), 0);
  EXPECT_GT(change->iteration_then_s(), 0);
  EXPECT_GT(change->pause_s(), 2) << "what a change costs besides what moves";
  EXPECT_GT(change->moved_bytes(), 0);
  EXPECT_THAT(change->fabric(), HasSubstr("nodes send 60 Mbit/s, out of a leaf of 2 each 3 Mbit/s"));
  const v1::JobPlan& plan = change->plan();
  EXPECT_EQ(plan.origin(), "asked");
  EXPECT_TRUE(CanBeAdvised(asked.question.spec, plan)) << "the controller may change it when the hold is over";
  EXPECT_EQ(plan.rank_hosts_size(), 4);
  EXPECT_THAT(plan.environment().at(kArgumentsVariable), HasSubstr("--strategy dp=2,pp=2,zero_stage=1"));
  EXPECT_EQ(plan.environment().at(kReshardVariable), "on");
}

// What the controller changes by itself is the same change by the same account.
TEST(JobChange, TheControllersOwnChangeComesToTheSame) {
  const AdviseRestart question = Listening();
  const v1::StrategyChange own = *AdviseJob(question, SmallOptions(), {.change = kCost})->change;
  const v1::JobPlan& plan = own.plan();
  const std::vector<std::string> words(plan.arguments().begin(), plan.arguments().end());
  const std::string text = formats::ParseTrainArguments(words)->plan.strategy;
  const auto asked = PriceAsked({.question = question, .before = {}}, Wanted(text), SmallOptions(), kCost);
  ASSERT_TRUE(asked.has_value()) << asked.error().message();
  EXPECT_EQ(asked->strategy(), own.strategy());
  EXPECT_DOUBLE_EQ(asked->iteration_then_s(), own.iteration_then_s());
  EXPECT_DOUBLE_EQ(asked->pause_s(), own.pause_s());
  EXPECT_EQ(asked->moved_bytes(), own.moved_bytes());
  EXPECT_EQ(asked->plan().environment().at(kArgumentsVariable), plan.environment().at(kArgumentsVariable));
}

TEST(JobChange, BackIsThePlanThatRanBeforeWordForWord) {
  AskedJob asked{.question = Listening(), .before = {}};
  EXPECT_THAT(Refused(asked, std::nullopt), HasSubstr("job \"small\": nothing to go back to"));
  const v1::JobPlan first = asked.question.plan;
  const auto change = PriceAsked(asked, Wanted("dp=2,pp=2,zero_stage=1"), SmallOptions(), kCost);
  ASSERT_TRUE(change.has_value()) << change.error().message();
  asked.question.plan = change->plan();
  asked.before = first;
  const auto back = PriceAsked(asked, std::nullopt, SmallOptions(), kCost);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(back->plan().SerializeAsString().size(), first.SerializeAsString().size());
  EXPECT_EQ(back->plan().environment().at(kArgumentsVariable), first.environment().at(kArgumentsVariable));
  EXPECT_DOUBLE_EQ(back->iteration_then_s() / back->iteration_now_s(), change->iteration_now_s() / change->iteration_then_s());
}

TEST(JobChange, WhatCannotBeIsRefusedWithTheReason) {
  AskedJob asked{.question = Listening(), .before = {}};
  EXPECT_THAT(Refused(asked, Wanted("dp=8")), HasSubstr("job \"small\": dp=8, expected 1 to the job's 4 GPUs"));
  EXPECT_THAT(Refused(asked, Wanted("dp=2")), HasSubstr("expected the job's 4"));
  EXPECT_THAT(Refused(asked, Wanted("dp=4,micro_batch=16")), HasSubstr("does not divide the 32 sequences"));
  EXPECT_THAT(Refused(asked, Wanted("tp=4,tensor_mode=2d")), HasSubstr("2d"));
  EXPECT_THAT(Refused(asked, Wanted("dp=4,local_steps=2")), HasSubstr("would be lost"));
  const std::vector<std::string> words(asked.question.plan.arguments().begin(), asked.question.plan.arguments().end());
  EXPECT_THAT(Refused(asked, formats::ParseStrategyText(formats::ParseTrainArguments(words)->plan.strategy).value()), HasSubstr("already"));
  JobPlannerOptions small = SmallOptions();
  small.cluster.device.memory = Bytes(1 << 20);
  const auto full = PriceAsked(asked, Wanted("dp=4"), small, kCost);
  ASSERT_FALSE(full.has_value());
  EXPECT_THAT(full.error().message(), HasSubstr("predicted not to fit"));
}

TEST(JobChange, WithoutProbesItIsPricedAsConfiguredAndSaysSo) {
  AskedJob asked{.question = Listening(), .before = {}};
  asked.question.view = PlacementView();
  const auto change = PriceAsked(asked, Wanted("dp=2,pp=2,zero_stage=1"), SmallOptions(), kCost);
  ASSERT_TRUE(change.has_value()) << change.error().message();
  EXPECT_THAT(change->fabric(), HasSubstr("as configured: probes have not joined"));
}

}  // namespace
}  // namespace weft::controller

#include "proto/plan_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace weft::proto {
namespace {

using ::testing::HasSubstr;

TEST(PlanCodec, StrategySurvivesTheRoundTrip) {
  planner::Strategy strategy;
  strategy.dp = 8;
  strategy.tp = 4;
  strategy.pp = 2;
  strategy.micro_batch = 3;
  strategy.zero_stage = 1;
  strategy.recompute = planner::Recompute::kFull;
  strategy.sequence_parallel = true;
  strategy.bucket_bytes = Bytes(12345);
  const Result<planner::Strategy> back = StrategyFromProto(ToProto(strategy));
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(*back, strategy);
}

// Each variable at each value near its bounds, the others at their defaults: none is left out of the message.
TEST(PlanCodec, StrategySurvivesTheRoundTripWithEveryVariable) {
  int checked = 0;
  for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
    for (int64_t value = variable.least; value <= std::min(variable.most, variable.least + 8); ++value, ++checked) {
      planner::Strategy strategy;
      variable.set(strategy, value);
      const Result<planner::Strategy> back = StrategyFromProto(ToProto(strategy));
      ASSERT_TRUE(back.has_value()) << back.error().message();
      EXPECT_EQ(*back, strategy) << variable.name << " " << value;
    }
  }
  EXPECT_GT(checked, 100);
}

// As before etp, shard_group and what follows them in the message.
TEST(PlanCodec, StrategyOfAnOlderSenderHasTheDefaultsThatItMeans) {
  v1::Strategy message;
  for (const auto set : {&v1::Strategy::set_dp, &v1::Strategy::set_tp, &v1::Strategy::set_pp, &v1::Strategy::set_cp, &v1::Strategy::set_ep,
                         &v1::Strategy::set_vpp, &v1::Strategy::set_micro_batch}) {
    (message.*set)(1);
  }
  message.set_recompute("full");
  message.set_schedule("1f1b");
  message.set_bucket_bytes(1 << 20);
  const Result<planner::Strategy> strategy = StrategyFromProto(message);
  ASSERT_TRUE(strategy.has_value()) << strategy.error().message();
  planner::Strategy expected;
  expected.recompute = planner::Recompute::kFull;
  expected.bucket_bytes = Bytes(1 << 20);
  EXPECT_EQ(*strategy, expected);
  EXPECT_EQ(strategy->recompute_layers, -1) << "all layers, not none";
}

TEST(PlanCodec, StrategyErrorsNameTheField) {
  v1::Strategy message = ToProto(planner::Strategy());
  message.set_pp(0);
  const auto degree = StrategyFromProto(message);
  ASSERT_FALSE(degree.has_value());
  EXPECT_EQ(degree.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(degree.error().message(), HasSubstr("pp: 0"));
  message = ToProto(planner::Strategy());
  message.set_recompute("some");
  const auto recompute = StrategyFromProto(message);
  ASSERT_FALSE(recompute.has_value());
  EXPECT_THAT(recompute.error().message(), HasSubstr("\"some\""));
  const struct {
    const char* message;
    void (*spoil)(v1::Strategy&);
  } cases[] = {
      {"strategy: zero_stage: 4, expected 0, 1, 2 or 3", [](v1::Strategy& m) { m.set_zero_stage(4); }},
      {"strategy: dp: 1099511627777, expected a number", [](v1::Strategy& m) { m.set_dp((int64_t{1} << 40) + 1); }},
      {"strategy: bucket_bytes: 0, expected an amount", [](v1::Strategy& m) { m.set_bucket_bytes(0); }},
      {"strategy: schedule: \"\", expected gpipe, 1f1b", [](v1::Strategy& m) { m.clear_schedule(); }},
      {"strategy: etp: -1, expected a number of at least 1", [](v1::Strategy& m) { m.set_etp(-1); }},
      {"strategy: shard_group: -1, expected 0", [](v1::Strategy& m) { m.set_shard_group(-1); }},
      {"strategy: recompute_layers: -2, expected -1", [](v1::Strategy& m) { m.set_recompute_layers(-2); }},
      {"strategy: tensor_depth: -3, expected", [](v1::Strategy& m) { m.set_tensor_depth(-3); }},
      {"strategy: tensor_mode: \"4d\", expected 1d, 2d", [](v1::Strategy& m) { m.set_tensor_mode("4d"); }},
      {"strategy: context_mode: \"Ring\", expected ring, all-gather", [](v1::Strategy& m) { m.set_context_mode("Ring"); }},
      {"strategy: data_sync: \"gossipp\", expected ring, hierarchical", [](v1::Strategy& m) { m.set_data_sync("gossipp"); }},
      {"strategy: rank_order: \"dp\", expected tp-cp-ep-dp-pp", [](v1::Strategy& m) { m.set_rank_order("dp"); }},
      {"strategy: sharding: \"a?b\", expected uniform", [](v1::Strategy& m) { m.set_sharding("a\nb"); }},
      {"strategy: gradient_wire: \"fp4\", expected whole, bf16", [](v1::Strategy& m) { m.set_gradient_wire("fp4"); }},
      {"strategy: local_steps: -1, expected", [](v1::Strategy& m) { m.set_local_steps(-1); }},
  };
  for (const auto& bad : cases) {
    message = ToProto(planner::Strategy());
    bad.spoil(message);
    const auto refused = StrategyFromProto(message);
    ASSERT_FALSE(refused.has_value()) << bad.message;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr(bad.message));
  }
}

TEST(PlanCodec, GivenStrategySurvivesTheRoundTripWithEveryVariable) {
  planner::Strategy strategy;
  for (const planner::StrategyVariable& variable : planner::StrategyVariables()) {
    variable.set(strategy, std::min<int64_t>(variable.most, variable.get(strategy) + 1));
  }
  v1::GivenStrategy message = ToGivenProto(strategy, std::string(300, 'x'));
  EXPECT_EQ(message.source().size(), 255u);
  const Result<planner::Strategy> back = StrategyFromProto(message);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(*back, strategy);
  EXPECT_EQ(StrategyFromProto(v1::GivenStrategy()).value(), planner::Strategy()) << "what is not named is a default";
}

TEST(PlanCodec, GivenStrategyErrorsNameTheVariable) {
  const auto message_of = [](const std::string& name, const std::string& value, int times = 1) {
    v1::GivenStrategy message;
    for (int i = 0; i < times; ++i) {
      message.add_values()->set_name(name);
      message.mutable_values(i)->set_value(value);
    }
    const auto strategy = StrategyFromProto(message);
    EXPECT_FALSE(strategy.has_value()) << name << " " << value;
    if (strategy) return std::string();
    EXPECT_EQ(strategy.error().code(), Code::kInvalidArgument);
    return strategy.error().message();
  };
  EXPECT_EQ(message_of("tp", "0"), "given strategy: tp: \"0\", expected a number of at least 1");
  EXPECT_THAT(message_of("schedule", "2f2b"), HasSubstr("schedule: \"2f2b\", expected gpipe, 1f1b"));
  EXPECT_THAT(message_of("speed", "9"), HasSubstr("\"speed\": unknown, expected one of dp, tp, pp"));
  EXPECT_THAT(message_of("tp", "8", 2), HasSubstr("tp: named twice"));
  EXPECT_THAT(message_of("tp", "8", 65), HasSubstr("65 variables, expected at most 64"));
  EXPECT_THAT(message_of("\n" + std::string(1000, 'n'), ""), HasSubstr("nnn...\": unknown"));
  EXPECT_THAT(message_of("bucket_bytes", "99999999999999999999GiB"), HasSubstr("expected an amount"));
  EXPECT_THAT(message_of("tp", std::string(100, '0')), HasSubstr("0...\", expected a number"));
  v1::GivenStrategy message;
  message.set_source("a\nb");
  EXPECT_THAT(StrategyFromProto(message).error().message(), HasSubstr("source: \"a?b\", expected a line"));
}

TEST(PlanCodec, PlanKeepsUnitsAndLeavesTheLaunchAlone) {
  planner::JobPlan plan;
  plan.predicted.iteration = Seconds(1.5);
  plan.predicted.memory.gradients = Bytes(1 << 20);
  plan.lower_bound = Seconds(1.25);
  plan.gap = 0.2;
  plan.why = {"dp 4: four hosts"};
  v1::JobPlan message;
  message.add_rank_hosts("h1");
  ToProto(plan, message);
  EXPECT_DOUBLE_EQ(message.predicted().iteration_s(), 1.5);
  EXPECT_EQ(message.predicted().gradient_bytes(), 1 << 20);
  EXPECT_DOUBLE_EQ(message.lower_bound_s(), 1.25);
  EXPECT_EQ(message.why(0), "dp 4: four hosts");
  EXPECT_EQ(message.rank_hosts(0), "h1");
}

TEST(PlanCodec, JobSpecMeansWhatItSays) {
  v1::JobSpec spec;
  spec.set_job_id("17");
  spec.set_global_batch(32);
  spec.set_sequence(128);
  spec.set_precision("fp32");
  spec.set_gpus(4);
  spec.set_measured_compute_s(0.5);
  const auto job = JobSpecFromProto(spec, {});
  ASSERT_TRUE(job.has_value()) << job.error().message();
  EXPECT_EQ(job->name, "17");
  EXPECT_EQ(job->precision, planner::Precision::kFp32);
  EXPECT_EQ(job->measured_compute, Seconds(0.5));
  spec.set_precision("int8");
  const auto refused = JobSpecFromProto(spec, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("\"int8\", expected one of fp32, tf32, fp16, bf16"));
}

}  // namespace
}  // namespace weft::proto

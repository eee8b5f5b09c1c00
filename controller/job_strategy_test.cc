// Strategies that users give: what the controller takes, what it refuses, what it says.
#include "controller/job_strategy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/config.h"
#include "formats/hf_config.h"
#include "planner/planner.h"
#include "proto/operation_codec.h"
#include "proto/plan_codec.h"

namespace weft::controller {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobPlannerOptions Options() {
  JobPlannerOptions options = DefaultConfig().planner;
  options.cluster = planner::FindClusterPreset("dgx-h100", 1).value();
  return options;
}

/// Llama 3 70B on `hosts` machines of eight GPUs.
v1::JobSpec Spec(int hosts) {
  v1::JobSpec spec;
  spec.set_job_id("llama");
  spec.set_model_config_json(formats::WriteHfConfig(formats::ResolveModel("llama3-70b").value()));
  spec.set_global_batch(128);
  spec.set_sequence(4096);
  spec.set_framework("megatron");
  spec.set_ranks_per_host(8);
  for (int i = 1; i <= hosts; ++i) spec.add_hosts(fmt::format("h{}", i));
  return spec;
}

v1::GivenStrategy Given(std::initializer_list<std::pair<const char*, const char*>> values) {
  v1::GivenStrategy given;
  given.set_source("plan.json, plan 0");
  for (const auto& [name, value] : values) {
    given.add_values()->set_name(name);
    given.mutable_values(given.values_size() - 1)->set_value(value);
  }
  return given;
}

v1::JobSpec WithMegatron() {
  v1::JobSpec spec = Spec(4);
  *spec.mutable_given_strategy() =
      Given({{"tp", "8"}, {"pp", "4"}, {"zero_stage", "1"}, {"recompute", "full"}, {"sequence_parallel", "true"}});
  return spec;
}

TEST(JobStrategy, AGivenOneIsPricedKeptAndNotSearched) {
  const auto planned = PlanJob(WithMegatron(), {}, Options());
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  const v1::JobPlan& plan = planned->plan;
  EXPECT_THAT(planned->errors, IsEmpty());
  EXPECT_EQ(plan.origin(), "given");
  EXPECT_EQ(plan.strategy().text(),
            "dp=1 tp=8 pp=4 micro_batch=1 zero_stage=1 recompute=full sequence_parallel=true");
  EXPECT_GT(plan.predicted().iteration_s(), 0);
  EXPECT_GT(plan.predicted().parameter_bytes(), int64_t{4} << 30) << "70.6e9 parameters of 2 bytes over 32 GPUs";
  EXPECT_GT(plan.predicted().usable_bytes(), int64_t{70} << 30);
  EXPECT_EQ(plan.lower_bound_s(), 0);
  EXPECT_THAT(plan.why(), Contains(HasSubstr("and megatron; not searched: no bound and no runner-up")));
  EXPECT_THAT(plan.why(), Contains(HasSubstr("traffic: paths, classes and windows follow what is measured")));
  EXPECT_THAT(plan.why(), Not(Contains(HasSubstr("warning"))));
  EXPECT_EQ(plan.rank_hosts_size(), 32);
  EXPECT_EQ(plan.environment().at("NCCL_NET_PLUGIN"), "weft");
  EXPECT_THAT(plan.arguments(), Contains("--pipeline-model-parallel-size"));
  EXPECT_EQ(plan.environment().at("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  const auto list = proto::OperationListFromProto(plan.operations());
  ASSERT_TRUE(list.has_value()) << list.error().message();
  EXPECT_EQ(list->stages, 4);
  EXPECT_EQ(list->ranks_per_stage, 8);
  // The fullest stage's memory over time peaks at what the prediction's parts come to, fragments and context on top.
  const v1::Prediction& p = plan.predicted();
  EXPECT_GT(planner::MemoryOfStage(*list, 0)->peak.count(),
            p.parameter_bytes() + p.gradient_bytes() + p.optimizer_bytes() + p.activation_bytes() + p.buffer_bytes() - 1);
}

TEST(JobStrategy, NoArgumentsOfOursForAStrategyThatOursCannotRun) {
  v1::JobSpec spec = WithMegatron();
  spec.clear_framework();
  const auto planned = PlanJob(spec, {}, Options());
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_EQ(planned->plan.arguments_size(), 0);
  EXPECT_THAT(planned->plan.why(), Contains(HasSubstr("the GPUs; no framework with rules of its own is named; not searched")));
}

TEST(JobStrategy, WhatDoesNotFitIsTakenWithAWarning) {
  v1::JobSpec spec = Spec(4);
  *spec.mutable_given_strategy() = Given({{"tp", "8"}, {"dp", "4"}});  // 148 GiB of state on each GPU
  const auto planned = PlanJob(spec, {}, Options());
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_THAT(planned->errors, IsEmpty());
  EXPECT_TRUE(planned->plan.has_strategy());
  EXPECT_THAT(planned->plan.why(), Contains(AllOf(HasSubstr("warning: memory: "), HasSubstr("predicted not to fit"))));
}

TEST(JobStrategy, WhatIsIllegalIsRefusedWithTheRule) {
  const auto refused = [](v1::JobSpec spec, std::initializer_list<std::pair<const char*, const char*>> values) {
    *spec.mutable_given_strategy() = Given(values);
    const auto planned = PlanJob(spec, {}, Options());
    EXPECT_FALSE(planned.has_value());
    if (planned) return std::string();
    EXPECT_EQ(planned.error().code(), Code::kInvalidArgument);
    return planned.error().message();
  };
  EXPECT_EQ(refused(Spec(4), {{"tp", "8"}, {"pp", "2"}}),
            "job \"llama\": given strategy (plan.json, plan 0): gpus: dp=1 x tp=8 x cp=1 x pp=2 = 16, expected the job's 32");
  EXPECT_THAT(refused(Spec(4), {{"tp", "8"}, {"dp", "4"}, {"zero_stage", "3"}}),
              HasSubstr("Megatron-LM core_v0.19.0 does not run it: zero_stage=3, expected 0 or 1"));
  EXPECT_THAT(refused(Spec(4), {{"tp", "zero"}}), HasSubstr("given strategy: tp: \"zero\", expected a number"));
  v1::JobSpec without = Spec(4);
  without.clear_model_config_json();
  EXPECT_THAT(refused(without, {{"tp", "8"}}), HasSubstr("without a model it cannot be checked"));
  v1::JobSpec framework = Spec(1);
  framework.set_framework(std::string(64, 'x'));
  EXPECT_THAT(refused(framework, {}), HasSubstr("framework: 64 characters, expected at most 63"));
}

TEST(JobStrategy, WhatCannotBePricedIsTakenAndSaysWhy) {
  v1::JobSpec spec = WithMegatron();
  spec.set_global_batch(0);
  const auto planned = PlanJob(spec, {}, Options());
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_EQ(planned->plan.origin(), "given");
  EXPECT_EQ(planned->plan.strategy().tp(), 8);
  EXPECT_EQ(planned->plan.predicted().iteration_s(), 0);
  EXPECT_THAT(planned->errors, ElementsAre(AllOf(HasSubstr("unchecked and without a price"), HasSubstr("global_batch: 0"))));
}

TEST(JobStrategy, WithoutOneTheJobIsManagedAndSaysHowToGetOne) {
  v1::JobSpec spec = Spec(4);
  spec.set_framework("torchrun");  // data parallelism, which would not fit
  const auto planned = PlanJob(spec, {}, Options());
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_FALSE(planned->plan.has_strategy());
  EXPECT_EQ(planned->plan.origin(), "");
  EXPECT_THAT(planned->errors, Contains(HasSubstr("no strategy fits: ")));
  EXPECT_THAT(planned->plan.why(), Contains(HasSubstr("--global-batch 128 --seq 4096 --output json > plan.json; weft submit")));
  EXPECT_EQ(planned->plan.environment().at("WEFT_JOB_ID"), "llama");
  EXPECT_EQ(planned->plan.arguments_size(), 0);
}

TEST(JobStrategy, ASearchThatHasNoTimeLeftSaysSo) {
  std::stop_source late;
  late.request_stop();
  const auto planned = PlanJob(Spec(4), {}, Options(), late.get_token());
  ASSERT_TRUE(planned.has_value()) << planned.error().message();
  EXPECT_FALSE(planned->plan.has_strategy());
  EXPECT_THAT(planned->errors, ElementsAre(HasSubstr("no strategy fits: nothing was found in the time that a search has")));
  EXPECT_EQ(planned->plan.environment().at("WEFT_JOB_ID"), "llama");
}

TEST(JobStrategy, PlainDataParallelismIsTheTrafficOfAPlan) {
  v1::Strategy strategy;  // as a journal of an older controller has it: 0 where nobody knew the variable
  strategy.set_dp(8);
  EXPECT_TRUE(SumsWholeGradients(strategy));
  strategy.set_tp(2);
  EXPECT_FALSE(SumsWholeGradients(strategy));
  strategy.set_tp(1);
  strategy.set_zero_stage(1);
  EXPECT_FALSE(SumsWholeGradients(strategy));
}

/// GPT-2 on four machines of one GPU, with so large a batch that activations would cost a pipeline more than gradients cost replicas.
v1::JobSpec SlowLinks() {
  v1::JobSpec spec = Spec(4);
  spec.set_model_config_json(formats::WriteHfConfig(formats::ResolveModel("gpt2").value()));
  spec.set_sequence(1024);
  spec.set_global_batch(4096);
  spec.set_ranks_per_host(1);
  spec.clear_framework();
  return spec;
}

// Whole gradients over 1 Gbit/s take longer than the rest; whoever allows fewer bits on the wire gets them.
TEST(JobStrategy, WhatChangesTrainingIsInAPlanOnlyWhereItIsAllowed) {
  JobPlannerOptions options = Options();
  options.cluster.nic_rate = GigabitsPerSecond(1);
  v1::JobSpec spec = SlowLinks();
  EXPECT_EQ(PlanJob(spec, {}, options)->plan.strategy().gradient_wire(), "whole");
  spec.add_allow("low_precision");
  const auto planned = PlanJob(spec, {}, options);
  ASSERT_TRUE(planned.has_value());
  EXPECT_THAT(planned->errors, IsEmpty());
  EXPECT_EQ(planned->plan.strategy().gradient_wire(), "fp8");
  EXPECT_EQ(planned->plan.strategy().local_steps(), 1);
  EXPECT_FALSE(SumsWholeGradients(planned->plan.strategy())) << "no ring of whole gradients is expected of it";
}

TEST(JobStrategy, WhatMayNotBeAllowedIsNamed) {
  v1::JobSpec spec = SlowLinks();
  spec.add_allow("haste");
  EXPECT_THAT(PlanJob(spec, {}, Options())->errors, ElementsAre(HasSubstr("allow \"haste\": expected low_precision")));
  spec.set_allow(0, "gossip");
  spec.set_framework("megatron");
  EXPECT_THAT(PlanJob(spec, {}, Options())->errors, ElementsAre(HasSubstr("allow with framework \"megatron\": it does not do these exchanges")));
  spec.clear_framework();
  spec.set_allow(0, std::string(1000, 'x'));
  EXPECT_THAT(PlanJob(spec, {}, Options())->errors, ElementsAre(HasSubstr("allow: a word of 1000 characters")));
  *spec.mutable_given_strategy() = Given({{"dp", "4"}});
  EXPECT_THAT(PlanJob(spec, {}, Options()).error().message(), HasSubstr("allow beside a given strategy"));
  spec.clear_given_strategy();
  spec.set_allow(0, "gossip");
  for (int i = 0; i < 16; ++i) spec.add_allow("gossip");
  EXPECT_THAT(PlanJob(spec, {}, Options())->errors, ElementsAre(HasSubstr("allow: 17 words, expected at most 16")));
}

}  // namespace
}  // namespace weft::controller

#include "planner/plan/price_given.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using ::testing::HasSubstr;

JobSpec Job(const char* model, int64_t batch, int64_t sequence) {
  return {.name = "job", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = sequence};
}
ClusterSpec Cluster(const char* name, int64_t nodes) { return FindClusterPreset(name, nodes).value(); }

Strategy Given(const char* text) {
  Strategy strategy;
  const FixedVariables fixed = ParseFixed(text).value();
  for (const auto& [name, value] : fixed) FindStrategyVariable(name)->set(strategy, value);
  return strategy;
}

TEST(PriceGiven, IsThePriceThatASearchGives) {
  const JobSpec job = Job("llama3-70b", 128, 4096);
  const ClusterSpec cluster = Cluster("dgx-h100", 4);
  const JobPlan best =
      Plan(job, cluster, {.fix = ParseFixed("tp=8,pp=4,vpp=1").value(), .framework = Framework::kMegatron})->plans.at(0);
  const GivenPrice price = PriceGiven(job, cluster, "megatron", best.strategy).value();
  EXPECT_EQ(price.plan.strategy, best.strategy);
  EXPECT_EQ(price.plan.predicted.iteration, best.predicted.iteration);
  EXPECT_EQ(price.plan.predicted.tokens_per_s, best.predicted.tokens_per_s);
  EXPECT_EQ(price.plan.predicted.memory.total(), best.predicted.memory.total());
  EXPECT_TRUE(price.fits);
  EXPECT_NEAR(static_cast<double>(price.usable.count()), 80 * 0x1p30 / MemoryFactor(kDefaultRisk), 1) << "at the default risk";
  EXPECT_EQ(price.plan.lower_bound, Seconds(0)) << "nothing was searched";
}

// 61 layers on 4 stages of 5 chunks each come out uneven, which no search enumerates: fixed to the last variable the strategy
// is priced all the same, as it is given.
TEST(Plan, AllVariablesFixedAreASpaceOfOne) {
  const JobSpec job = Job("deepseek-v3", 512, 4096);
  const ClusterSpec cluster = Cluster("dgx-h100", 32);
  const Strategy given = Given("tp=8,pp=4,dp=8,ep=64,vpp=5,micro_batch=1,zero_stage=1,schedule=interleaved,sequence_parallel=true,"
                               "recompute=full,shard_group=1");
  FixedVariables fixed;
  for (const StrategyVariable& variable : StrategyVariables()) fixed.emplace(variable.name, variable.get(given));
  const PlanAnswer answer = Plan(job, cluster, {.fix = fixed, .risk = std::nullopt}).value();
  ASSERT_EQ(answer.plans.size(), 1u);
  EXPECT_EQ(answer.strategies, 1);
  EXPECT_EQ(answer.plans[0].strategy, given);
  EXPECT_EQ(answer.plans[0].predicted.iteration, PriceGiven(job, cluster, "any", given)->plan.predicted.iteration);
  EXPECT_EQ(answer.plans[0].gap, 0);
  FixedVariables free = fixed;
  free.erase("bucket_bytes");
  EXPECT_TRUE(Plan(job, cluster, {.fix = free, .risk = std::nullopt})->plans.empty()) << "not among those that are enumerated";
  // What breaks a rule, of the model or of the framework, is no strategy.
  EXPECT_TRUE(Plan(job, cluster, {.fix = fixed, .framework = Framework::kTorchtitan, .risk = std::nullopt})->plans.empty());
  fixed["ep"] = 3;
  EXPECT_TRUE(Plan(job, cluster, {.fix = fixed, .risk = std::nullopt})->plans.empty());
  // Values as large as variables may be overflow nothing.
  for (const StrategyVariable& variable : StrategyVariables()) {
    FixedVariables huge = fixed;
    for (auto& [name, value] : huge) value = FindStrategyVariable(name)->most;
    huge[std::string(variable.name)] = variable.least;
    EXPECT_TRUE(Plan(job, cluster, {.fix = huge, .risk = std::nullopt})->plans.empty());
  }
}

TEST(PriceGiven, WhatDoesNotFitIsPricedAllTheSame) {
  const JobSpec job = Job("llama3-70b", 128, 4096);
  // 70.6e9 parameters of 18 bytes in bf16, over 8 GPUs: 148 GiB of state alone.
  const GivenPrice price = PriceGiven(job, Cluster("dgx-h100", 4), "", Given("tp=8,dp=4,micro_batch=1")).value();
  EXPECT_FALSE(price.fits);
  EXPECT_GT(price.plan.predicted.memory.total(), price.usable);
  EXPECT_GT(price.plan.predicted.iteration.count(), 0);
}

TEST(PriceGiven, RefusesByTheRuleThatIsBroken) {
  const JobSpec job = Job("llama3-70b", 128, 4096);
  const ClusterSpec cluster = Cluster("dgx-h100", 4);
  struct Case {
    const char *framework, *strategy, *piece;
  };
  for (const auto& [framework, strategy, piece] : std::initializer_list<Case>{
           {"megatron", "tp=8,pp=2", "gpus: dp=1 x tp=8 x cp=1 x pp=2 = 16, expected the job's 32"},
           {"megatron", "tp=8,pp=4,dp=2", "gpus: dp=2 x tp=8 x cp=1 x pp=4, expected the job's 32"},
           {"", "dp=4,pp=8,micro_batch=3", "batch: dp=4 x micro_batch=3 does not divide the 128 sequences"},
           {"", "tp=16,dp=2,sequence_parallel=true,tensor_mode=2d", "grid: 2d with tp=16"},
           {"megatron", "tp=8,dp=4,zero_stage=3", "Megatron-LM core_v0.19.0 does not run it: zero_stage=3, expected 0 or 1"},
           {"weft-train-ddp", "tp=8,dp=4", "weft-train without a plan 0.1 does not run it: dp=4 tp=8 micro_batch=1: expected data parallelism alone"},
       }) {
    const auto refused = PriceGiven(job, cluster, framework, Given(strategy));
    ASSERT_FALSE(refused) << strategy;
    EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition) << strategy;
    EXPECT_THAT(refused.error().message(), HasSubstr(piece));
  }
  EXPECT_TRUE(PriceGiven(job, cluster, "torchrun", Given("tp=8,dp=4,zero_stage=3"))) << "it restricts nothing";
}

TEST(PriceGiven, TakesAnyValuesWithoutOverflow) {
  const JobSpec job = Job("llama3-8b", 128, 4096);
  for (const StrategyVariable& variable : StrategyVariables()) {
    for (const int64_t value : {variable.least, variable.most}) {
      Strategy strategy = Given("dp=8");
      variable.set(strategy, value);
      const auto price = PriceGiven(job, Cluster("dgx-h100", 1), "", strategy);
      EXPECT_TRUE(price || price.error().code() == Code::kFailedPrecondition) << variable.name << " " << value;
    }
  }
  Strategy huge = Given("dp=8");
  huge.dp = huge.tp = huge.pp = huge.cp = huge.ep = huge.vpp = huge.micro_batch = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(PriceGiven(job, Cluster("dgx-h100", 1), "", huge));
}

TEST(PriceGiven, DataParallelismIsPricedAsPlanned) {
  JobSpec job = Job("gpt2", 64, 1024);
  job.measured_compute = Seconds(2);
  const ClusterSpec cluster = Cluster("dgx-a100", 1);
  const JobPlan best = Plan(job, cluster, {.framework = Framework::kWeftTrainDdp})->plans.at(0);
  const GivenPrice price = PriceGiven(job, cluster, "weft-train-ddp", best.strategy).value();
  EXPECT_EQ(price.plan.predicted.iteration, best.predicted.iteration);
  EXPECT_EQ(price.plan.predicted.memory.total(), best.predicted.memory.total());
  const Estimate& parts = price.plan.predicted.parts;
  EXPECT_NEAR((parts.compute + parts.optimizer + parts.overhead).count(), 2, 0.02);
  Strategy own = best.strategy;
  own.bucket_bytes = Bytes(0);
  EXPECT_EQ(PriceGiven(job, cluster, "weft-train-ddp", own)->plan.strategy.bucket_bytes, Bytes(1 << 20)) << "--bucket, where nobody says it";
  EXPECT_GE(price.plan.predicted.iteration, Seconds(2)) << "no faster than what was measured";
}

TEST(PriceGiven, JobThatMakesNoSenseIsAnErrorOfItsOwnKind) {
  const auto none = PriceGiven(Job("gpt2", 0, 1024), Cluster("dgx-a100", 1), "", Given("dp=8"));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(none.error().message(), HasSubstr("global_batch: 0"));
  const auto large = PriceGiven({.name = "job", .model = FindModelPreset("gpt2").value(), .global_batch = 64,
                                 .sequence = 1024, .gpus = 64}, Cluster("dgx-a100", 1), "", Given("dp=64"));
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message(), HasSubstr("gpus: 64, expected at most the 8"));
}

}  // namespace
}  // namespace weft::planner

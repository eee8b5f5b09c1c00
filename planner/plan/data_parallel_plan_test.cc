#include "planner/plan/data_parallel_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/data_parallel.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

JobSpec Gpt2Job(int64_t batch = 64) {
  return {.name = "job", .model = FindModelPreset("gpt2").value(), .global_batch = batch, .sequence = 1024};
}
/// Plan() for weft-train.
Result<PlanAnswer> PlanBatch(const JobSpec& job, const ClusterSpec& cluster, PlanOptions options) {
  options.framework = Framework::kWeftTrain;
  return Plan(job, cluster, options);
}
ClusterSpec A100(int64_t nodes) { return FindClusterPreset("dgx-a100", nodes).value(); }

std::string Text(const PlanAnswer& answer) {
  std::string text = fmt::format("{} {} {} {}\n", answer.strategies, answer.evaluated, answer.pruned, answer.complete);
  for (const JobPlan& plan : answer.plans) {
    text += fmt::format("{} {} {} {} {} {} {}\n", plan.strategy.dp, plan.strategy.micro_batch,
                        RecomputeName(plan.strategy.recompute), plan.strategy.bucket_bytes.count(),
                        plan.predicted.iteration.count(), plan.lower_bound.count(), plan.gap);
    for (const std::string& line : plan.why) text += line + "\n";
  }
  for (const std::string& line : answer.infeasible) text += line + "\n";
  return text;
}

TEST(DataParallelPlan, UsesAllGpusWhereTheBatchDivides) {
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), {}).value();
  ASSERT_EQ(answer.plans.size(), 1u);
  const JobPlan& plan = answer.plans[0];
  EXPECT_EQ(plan.strategy.dp, 16);
  EXPECT_EQ(plan.strategy.recompute, Recompute::kNone);
  EXPECT_LE(plan.lower_bound, plan.predicted.iteration);
  EXPECT_NEAR(plan.gap, plan.predicted.iteration / plan.lower_bound - 1, 1e-12);
  EXPECT_NEAR(plan.predicted.tokens_per_s * plan.predicted.iteration.count(), 64 * 1024, 1e-6);
  EXPECT_NEAR(plan.predicted.mfu, plan.predicted.tflops_per_gpu / 312, 1e-12);
  EXPECT_LE(plan.predicted.memory.total(), UsableMemory(A100(2).device));
  EXPECT_THAT(plan.why, Contains(HasSubstr("runner-up")));
  EXPECT_THAT(plan.why, Contains(HasSubstr("dp=16: all GPUs")));
  EXPECT_TRUE(answer.complete);
}

TEST(DataParallelPlan, ComputeThatTheDeviceCannotDoIsSaid) {
  JobSpec job = Gpt2Job();
  const auto doubt = Contains(HasSubstr("than a100-80 needs at its peak"));
  job.measured_compute = Seconds(1e-4);
  EXPECT_THAT(PlanBatch(job, A100(2), {}).value().plans.at(0).why, doubt);
  job.measured_compute = Seconds(1);
  EXPECT_THAT(PlanBatch(job, A100(2), {}).value().plans.at(0).why, Not(doubt));
}

TEST(DataParallelPlan, ADegreeMustDivideGpusAndBatch) {
  // 16 GPUs, 24 sequences: the largest common divisor is 8.
  const PlanAnswer answer = PlanBatch(Gpt2Job(24), A100(2), {}).value();
  EXPECT_EQ(answer.plans.at(0).strategy.dp, 8);
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr("8 of 16 GPUs work: the batch of 24 sequences")));
}

// The optimum over all, by evaluating every one.
TEST(DataParallelPlan, IsTheOptimumOfItsSpace) {
  JobSpec job = Gpt2Job(96);
  const ClusterSpec cluster = A100(3);
  const PlanAnswer answer = PlanBatch(job, cluster, {}).value();
  job.gpus = 24;
  double best = 1e9;
  for (const int64_t dp : {1, 2, 3, 4, 6, 8, 12, 24}) {
    for (const int64_t micro_batch : Divisors(96 / dp)) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        if (DataParallelMemory(job, micro_batch, recompute).total() > UsableMemory(cluster.device)) continue;
        const Strategy strategy{.dp = dp, .micro_batch = micro_batch, .recompute = recompute};
        best = std::min(best, PredictDataParallel(job, cluster, strategy, false).predicted.iteration.count());
      }
    }
  }
  EXPECT_DOUBLE_EQ(answer.plans.at(0).predicted.iteration.count(), best);
  EXPECT_GT(answer.pruned, 0);
  EXPECT_EQ(answer.evaluated + answer.pruned, answer.strategies);
}

TEST(DataParallelPlan, TopPlansComeBestFirstAndDiffer) {
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), {.top = 4}).value();
  ASSERT_EQ(answer.plans.size(), 4u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_GE(answer.plans[i].predicted.iteration, answer.plans[i - 1].predicted.iteration);
    EXPECT_FALSE(answer.plans[i].strategy == answer.plans[i - 1].strategy);
  }
}

TEST(DataParallelPlan, FixedVariablesAreKept) {
  const PlanOptions options{.fix = {{"dp", 4}, {"micro_batch", 2}, {"recompute", 1}, {"bucket_bytes", 7 << 20}}};
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), options).value();
  ASSERT_EQ(answer.plans.size(), 1u);
  EXPECT_EQ(answer.strategies, 1);
  const Strategy& strategy = answer.plans[0].strategy;
  EXPECT_EQ(strategy.dp, 4);
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.recompute, Recompute::kFull);
  EXPECT_EQ(strategy.bucket_bytes, Bytes(7 << 20));
}

// 70,553,706,496 parameters at 18 bytes are 1182.7 GiB before any activation.
TEST(DataParallelPlan, AModelThatDoesNotFitIsAnAnswerThatSaysByHowMuch) {
  JobSpec job = Gpt2Job();
  job.model = FindModelPreset("llama3-70b").value();
  job.sequence = 2048;
  const PlanAnswer answer = PlanBatch(job, A100(2), {}).value();
  EXPECT_TRUE(answer.plans.empty());
  ASSERT_FALSE(answer.infeasible.empty());
  EXPECT_THAT(answer.infeasible[0], HasSubstr("micro_batch=1, recompute=full needs 11"));
  EXPECT_THAT(answer.infeasible[0], HasSubstr("of 78.0 GiB"));
  EXPECT_THAT(answer.infeasible[0], HasSubstr("optimizer 788.5 GiB"));
  EXPECT_EQ(answer.pruned, answer.strategies);
}

TEST(DataParallelPlan, RecomputationIsTakenOnlyWhereActivationsDoNotFit) {
  JobSpec job = Gpt2Job(8);
  const ClusterSpec cluster = A100(1);
  EXPECT_EQ(PlanBatch(job, cluster, {}).value().plans.at(0).strategy.recompute, Recompute::kNone);
  ClusterSpec small = cluster;
  small.device.memory = small.device.reserved +
                        (DataParallelMemory(job, 1, Recompute::kNone).total() - Bytes(1));
  const PlanAnswer answer = PlanBatch(job, small, {}).value();
  EXPECT_EQ(answer.plans.at(0).strategy.recompute, Recompute::kFull);
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr("keeping activations would need")));
}

TEST(DataParallelPlan, AFixThatDividesNothingIsInfeasible) {
  const PlanAnswer dp = PlanBatch(Gpt2Job(), A100(1), {.fix = {{"dp", 3}}}).value();
  EXPECT_TRUE(dp.plans.empty());
  EXPECT_THAT(dp.infeasible, Contains(HasSubstr("dp=3 does not divide both the 8 GPUs and the 64 sequences")));
  const PlanAnswer micro = PlanBatch(Gpt2Job(), A100(1), {.fix = {{"micro_batch", 5}}}).value();
  EXPECT_THAT(micro.infeasible, Contains(HasSubstr("micro_batch=5")));
}

TEST(DataParallelPlan, BadQuestionsAreErrorsThatNameFieldValueAndExpectation) {
  const auto message = [](const JobSpec& job, const PlanOptions& options) {
    const Result<PlanAnswer> answer = PlanBatch(job, A100(1), options);
    if (answer) return std::string("accepted");
    EXPECT_EQ(answer.error().code(), Code::kInvalidArgument);
    return answer.error().message();
  };
  EXPECT_THAT(message(Gpt2Job(0), {}), HasSubstr("global_batch: 0, expected a positive number"));
  JobSpec job = Gpt2Job();
  job.sequence = 4096;
  EXPECT_THAT(message(job, {}), HasSubstr("sequence: 4096, expected at most the 1024 positions of gpt2"));
  job = Gpt2Job();
  job.gpus = 9;
  EXPECT_THAT(message(job, {}), HasSubstr("gpus: 9, expected at most the 8 of cluster dgx-a100"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"tp", 8}}}), HasSubstr("fix tp: 8, expected 1"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"dq", 8}}}), HasSubstr("fix dq: unknown, expected one of dp"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"recompute", 2}}}), HasSubstr("expected 0 (none) or 1 (full)"));
}

TEST(DataParallelPlan, ASpentBudgetIsSaid) {
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), {.node_budget = 1}).value();
  EXPECT_FALSE(answer.complete);
  EXPECT_EQ(answer.plans.size(), 1u);
}

TEST(DataParallelPlan, TheSameQuestionHasTheSameAnswerByteForByte) {
  for (const int64_t nodes : {1, 3, 16}) {
    const PlanOptions options{.top = 5};
    EXPECT_EQ(Text(PlanBatch(Gpt2Job(96), A100(nodes), options).value()),
              Text(PlanBatch(Gpt2Job(96), A100(nodes), options).value()));
  }
}

}  // namespace
}  // namespace weft::planner

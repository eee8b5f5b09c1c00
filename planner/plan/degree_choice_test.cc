// weft-train without a plan: data parallelism alone, with fewer ranks than GPUs where that is what divides, or what is faster.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/divisors.h"
#include "planner/planner.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

JobSpec Gpt2Job(int64_t batch = 64) {
  return {.name = "job", .model = FindModelPreset("gpt2").value(), .global_batch = batch, .sequence = 1024};
}
/// Plan() for weft-train without a plan.
Result<PlanAnswer> PlanBatch(const JobSpec& job, const ClusterSpec& cluster, PlanOptions options) {
  options.framework = Framework::kWeftTrainDdp;
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

TEST(DegreeChoice, UsesAllGpusWhereTheBatchDivides) {
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), {}).value();
  ASSERT_EQ(answer.plans.size(), 1u);
  const JobPlan& plan = answer.plans[0];
  EXPECT_EQ(plan.strategy.dp, 16);
  EXPECT_EQ(plan.strategy.recompute, Recompute::kNone);
  EXPECT_LE(plan.lower_bound, plan.predicted.iteration);
  EXPECT_NEAR(plan.gap, plan.predicted.iteration / plan.lower_bound - 1, 1e-12);
  EXPECT_NEAR(plan.predicted.tokens_per_s * plan.predicted.iteration.count(), 64 * 1024, 1e-6);
  EXPECT_NEAR(plan.predicted.mfu, plan.predicted.tflops_per_gpu / 312, 1e-12);
  EXPECT_LE(plan.predicted.memory.total(), A100(2).device.memory);
  EXPECT_THAT(plan.why, Contains(HasSubstr("runner-up")));
  EXPECT_THAT(plan.why, Contains(HasSubstr("dp=16 x tp=1 x pp=1 x cp=1: all 16 GPUs")));
  EXPECT_THAT(plan.why, Contains(HasSubstr("runs on: weft-train without a plan 0.1")));
  EXPECT_THAT(plan.why, Contains(HasSubstr("not dp=8: +")));
  EXPECT_TRUE(answer.complete);
}

// As of every other program: parts that add up, the list of operations and what reads it off.
TEST(DegreeChoice, AnswersAsOtherProgramsDo) {
  const JobPlan plan = PlanBatch(Gpt2Job(), A100(2), {}).value().plans.at(0);
  const Estimate& e = plan.predicted.parts;
  const Seconds sum = e.compute + e.tensor + e.context + e.expert + e.data + e.pipeline + e.bubble + e.optimizer + e.overhead;
  EXPECT_NEAR(sum.count(), plan.predicted.iteration.count(), 1e-9);
  EXPECT_EQ(plan.framework, Framework::kWeftTrainDdp);
  ASSERT_EQ(plan.communicators.size(), 2u) << "the gradients', and the one over all ranks";
  EXPECT_EQ(plan.communicators[0].kind, CommunicatorKind::kData);
  EXPECT_EQ(plan.communicators[0].size, 16);
  EXPECT_EQ(plan.communicators[0].exposed, plan.predicted.exposed_communication);
  EXPECT_FALSE(plan.operations.classes.empty());
  EXPECT_GT(plan.predicted.fits, 0.9);
}

// 124,439,808 parameters: 4 + 4 + 8 bytes in fp32, 2 + 4 + 12 in bf16.
TEST(DegreeChoice, StateIsSixteenOrEighteenBytesPerParameter) {
  JobSpec job = Gpt2Job();
  const auto state = [&] {
    const MemoryUse memory = PlanBatch(job, A100(2), {}).value().plans.at(0).predicted.memory;
    return (memory.parameters + memory.gradients + memory.optimizer).count();
  };
  EXPECT_EQ(state(), int64_t{124'439'808} * 18);
  job.precision = Precision::kFp32;
  EXPECT_EQ(state(), int64_t{124'439'808} * 16);
}

TEST(DegreeChoice, ComputeThatTheDeviceCannotDoIsSaid) {
  JobSpec job = Gpt2Job();
  const auto doubt = Contains(HasSubstr("than a100-80 needs at its peak"));
  job.measured_compute = Seconds(1e-4);
  EXPECT_THAT(PlanBatch(job, A100(2), {}).value().plans.at(0).why, doubt);
  job.measured_compute = Seconds(1);
  EXPECT_THAT(PlanBatch(job, A100(2), {}).value().plans.at(0).why, Not(doubt));
  job.measured_compute = Seconds(1e-4);
  EXPECT_THAT(Plan(job, A100(2), {.framework = Framework::kMegatron})->plans.at(0).why, doubt) << "of any program";
  job.global_batch = 24;
  EXPECT_THAT(PlanBatch(job, A100(2), {}).value().plans.at(0).why, Contains(HasSubstr("measured compute of 100 us is less")))
      << "the job's own, though half of its GPUs idle";
}

// 2 s on 16 GPUs are 4 s on the eight that divide the batch.
TEST(DegreeChoice, MeasuredComputeGoesWithTheGpusThatWork) {
  for (const auto& [batch, seconds] : {std::pair<int64_t, double>{64, 2}, {24, 4}}) {
    JobSpec job = Gpt2Job(batch);
    job.measured_compute = Seconds(2);
    const Estimate e = PlanBatch(job, A100(2), {}).value().plans.at(0).predicted.parts;
    EXPECT_NEAR((e.compute + e.optimizer + e.overhead).count() / seconds, 1, 0.01) << batch;
  }
}

TEST(DegreeChoice, ADegreeMustDivideGpusAndBatch) {
  // 16 GPUs, 24 sequences: the largest common divisor is 8.
  const PlanAnswer answer = PlanBatch(Gpt2Job(24), A100(2), {}).value();
  EXPECT_EQ(answer.plans.at(0).strategy.dp, 8);
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr("8 of 16 GPUs work: the batch of 24 sequences")));
  // 312 TFLOP/s each; the rates are of all 16 GPUs.
  const Prediction& predicted = answer.plans[0].predicted;
  const CostModel model = CostModel::Make(Gpt2Job(24), A100(2)).value();
  EXPECT_NEAR(predicted.mfu, model.model_flops().count() / predicted.iteration.count() / (16 * 312e12), 1e-9);
  EXPECT_EQ(answer.plans[0].communicators.at(0).size, 8);
}

// 16 GPUs under nodes of one GPU with a link of 10 Mbit/s: half a gigabyte of gradients takes longer than all else.
TEST(DegreeChoice, FewerRanksWorkWhereTheExchangeCostsMoreThanItSaves) {
  ClusterSpec slow{.name = "slow", .nodes = 16, .gpus_per_node = 1, .device = *FindDevice("a100-80"),
                   .intra_node_rate = GigabitsPerSecond(80), .nic_rate = MegabitsPerSecond(10)};
  const PlanAnswer answer = PlanBatch(Gpt2Job(), slow, {.top = 3}).value();
  EXPECT_EQ(answer.plans.at(0).strategy.dp, 1);
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr("1 of 16 GPUs work: with more, exchanging gradients costs more")));
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr("not dp=2: +")));
}

// The optimum over all, by simulating every one.
TEST(DegreeChoice, IsTheOptimumOfItsSpace) {
  const ClusterSpec cluster = A100(3);
  const PlanAnswer answer = PlanBatch(Gpt2Job(96), cluster, {}).value();
  double best = 1e9;
  int64_t strategies = 0;
  for (const int64_t dp : {1, 2, 3, 4, 6, 8, 12, 24}) {
    JobSpec job = Gpt2Job(96);
    job.gpus = dp;
    const CostModel model = CostModel::Make(job, cluster, Calibration(), {.framework = Framework::kWeftTrainDdp}).value();
    CostModel::Scratch scratch;
    for (const int64_t micro_batch : Divisors(96 / dp)) {
      for (const DataSync sync : {DataSync::kRing, DataSync::kHierarchical}) {
        for (const int64_t mebibytes : {1, 4, 16, 64, 256}) {
          if (dp == 1 && (sync != DataSync::kRing || mebibytes > 1)) continue;
          Strategy strategy{.dp = dp, .micro_batch = micro_batch, .data_sync = sync};
          strategy.bucket_bytes = Bytes(mebibytes << 20);
          const Estimate estimate = model.EvaluateSimulated(strategy, scratch);
          ++strategies;
          EXPECT_LE(model.Evaluate(strategy, scratch).iteration, estimate.iteration * (1 + 1e-9));
          if (estimate.fits) best = std::min(best, estimate.iteration.count());
        }
      }
    }
  }
  EXPECT_DOUBLE_EQ(answer.plans.at(0).predicted.iteration.count(), best);
  EXPECT_EQ(answer.strategies, strategies);
  EXPECT_EQ(answer.evaluated + answer.pruned, answer.strategies);
  EXPECT_EQ(answer.plans[0].gap, 0);
}

TEST(DegreeChoice, TopPlansComeBestFirstAndDiffer) {
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), {.top = 4}).value();
  ASSERT_EQ(answer.plans.size(), 4u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_GE(answer.plans[i].predicted.iteration, answer.plans[i - 1].predicted.iteration);
    Strategy other = answer.plans[i - 1].strategy;
    other.bucket_bytes = answer.plans[i].strategy.bucket_bytes;
    EXPECT_FALSE(answer.plans[i].strategy == other) << "not by the bucket alone";
  }
  // Inside a node a ring and a hierarchy are the same: one of them stands for both.
  const PlanAnswer node = PlanBatch(Gpt2Job(24), A100(2), {.top = 4}).value();
  for (size_t i = 1; i < 4; ++i) EXPECT_GT(node.plans.at(i).predicted.iteration, node.plans[i - 1].predicted.iteration);
}

TEST(DegreeChoice, FixedVariablesAreKept) {
  const PlanOptions options{.fix = {{"dp", 4}, {"micro_batch", 2}, {"data_sync", 1}, {"bucket_bytes", 7 << 20}}};
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), options).value();
  ASSERT_EQ(answer.plans.size(), 1u);
  EXPECT_EQ(answer.strategies, 1);
  const Strategy& strategy = answer.plans[0].strategy;
  EXPECT_EQ(strategy.dp, 4);
  EXPECT_EQ(strategy.micro_batch, 2);
  EXPECT_EQ(strategy.data_sync, DataSync::kHierarchical);
  EXPECT_EQ(strategy.bucket_bytes, Bytes(7 << 20));
}

// A plan once said "bucket 400 MiB" for a model with less than a mebibyte of gradients.
TEST(DegreeChoice, NoBucketIsLargerThanTheGradients) {
  JobSpec job = Gpt2Job();
  job.model.layers = 2;
  job.model.hidden = 64;
  job.model.heads = job.model.kv_heads = 4;
  job.model.head_dim = 16;
  job.model.ffn_hidden = 256;
  job.model.vocab = 1000;
  const int64_t gradients = 4 * ParameterCount(job.model);
  ASSERT_LT(gradients, 1 << 20);
  for (const JobPlan& plan : PlanBatch(job, A100(2), {.top = 5, .fix = {{"dp", 16}}}).value().plans) {
    EXPECT_EQ(plan.strategy.bucket_bytes.count(), gradients);
  }
}

// 70,553,706,496 parameters at 18 bytes are 1182.7 GiB before any activation; 80 GiB over the risk's factor are taken.
TEST(DegreeChoice, AModelThatDoesNotFitIsAnAnswerThatSaysByHowMuch) {
  JobSpec job = Gpt2Job();
  job.model = FindModelPreset("llama3-70b").value();
  job.sequence = 2048;
  const PlanAnswer answer = PlanBatch(job, A100(2), {}).value();
  EXPECT_TRUE(answer.plans.empty());
  ASSERT_EQ(answer.infeasible.size(), 2u);
  EXPECT_THAT(answer.infeasible[0], HasSubstr("dp=16 micro_batch=1, is predicted to need 12"));
  EXPECT_THAT(answer.infeasible[0], HasSubstr("of a100-80 with 80.0 GiB"));
  EXPECT_THAT(answer.infeasible[0], HasSubstr("optimizer 788.5 GiB"));
  EXPECT_THAT(answer.infeasible[1], HasSubstr("every GPU keeps the whole model: more GPUs do not help"));
  EXPECT_EQ(answer.pruned, answer.strategies);
}

TEST(DegreeChoice, AFixThatDividesNothingIsInfeasible) {
  const PlanAnswer dp = PlanBatch(Gpt2Job(), A100(1), {.fix = {{"dp", 3}}}).value();
  EXPECT_TRUE(dp.plans.empty());
  EXPECT_THAT(dp.infeasible, Contains(HasSubstr("dp=3 does not divide both the 8 GPUs and the 64 sequences")));
  const PlanAnswer micro = PlanBatch(Gpt2Job(), A100(1), {.fix = {{"micro_batch", 5}}}).value();
  EXPECT_THAT(micro.infeasible, Contains(HasSubstr("micro_batch=5")));
}

TEST(DegreeChoice, BadQuestionsAreErrorsThatNameFieldValueAndExpectation) {
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
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"tp", 8}}}), HasSubstr("fix: weft-train without a plan 0.1 does not run dp=8 tp=8 micro_batch=1: expected data "
                                                                  "parallelism alone"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"zero_stage", 1}}}), HasSubstr("does not run zero_stage=1, expected 0"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"data_sync", 2}}}), HasSubstr("data_sync=parameter-server, expected a sum that the ranks make"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"recompute", 2}}}), HasSubstr("recompute=full"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"dq", 8}}}), HasSubstr("fix dq: unknown, expected one of dp"));
  EXPECT_THAT(message(Gpt2Job(), {.fix = {{"recompute", 3}}}), HasSubstr("fix recompute: 3, expected none"));
  job = Gpt2Job();
  job.measured_compute = Seconds(-1);
  EXPECT_THAT(message(job, {}), HasSubstr("measured_compute: -1 s, expected a positive time"));
}

TEST(DegreeChoice, ASpentBudgetIsSaid) {
  const PlanAnswer answer = PlanBatch(Gpt2Job(), A100(2), {.node_budget = 1}).value();
  EXPECT_FALSE(answer.complete);
  EXPECT_EQ(answer.plans.size(), 1u);
}

TEST(DegreeChoice, TheSameQuestionHasTheSameAnswerByteForByte) {
  for (const int64_t nodes : {1, 3, 16}) {
    const PlanOptions options{.top = 5};
    EXPECT_EQ(Text(PlanBatch(Gpt2Job(96), A100(nodes), options).value()),
              Text(PlanBatch(Gpt2Job(96), A100(nodes), options).value()));
  }
}

}  // namespace
}  // namespace weft::planner

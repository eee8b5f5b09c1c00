#include "planner/planner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

JobSpec Job(const char* model, int64_t batch, int64_t sequence) {
  return {.name = "job", .model = FindModelPreset(model).value(), .global_batch = batch, .sequence = sequence};
}
ClusterSpec Cluster(const char* name, int64_t nodes) { return FindClusterPreset(name, nodes).value(); }

std::string Text(const PlanAnswer& answer) {
  std::string text;
  for (const JobPlan& plan : answer.plans) {
    text += fmt::format("{} {} {} {}\n", DescribeStrategy(plan.strategy), plan.predicted.iteration.count(),
                        plan.predicted.memory.total().count(), plan.gap);
  }
  for (const FrontPoint& point : answer.front) {
    text += fmt::format("{} {} {}\n", DescribeStrategy(point.strategy), point.iteration.count(), point.memory.count());
  }
  for (const std::string& line : answer.infeasible) text += line + "\n";
  return text;
}

TEST(Plan, ProvesTheOptimumOfTheWholeSpace) {
  const PlanAnswer answer = Plan(Job("llama3-8b", 128, 8192), Cluster("dgx-a100", 4), {.top = 3}).value();
  ASSERT_EQ(answer.plans.size(), 3u);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.evaluated + answer.pruned, answer.strategies);
  EXPECT_GT(answer.strategies, 1'000'000);
  EXPECT_LT(answer.evaluated, answer.strategies / 100);
  for (size_t i = 0; i < answer.plans.size(); ++i) {
    const JobPlan& plan = answer.plans[i];
    EXPECT_EQ(GpuCount(plan.strategy), 32);
    EXPECT_LE(answer.plans[0].predicted.iteration, plan.predicted.iteration);
    EXPECT_EQ(plan.lower_bound, answer.plans[0].predicted.iteration);
    EXPECT_LE(static_cast<double>(plan.predicted.memory.total().count()),
              MemoryAllowance(Cluster("dgx-a100", 4).device, kDefaultRisk));
    EXPECT_NEAR(plan.predicted.tokens_per_s * plan.predicted.iteration.count(), 128.0 * 8192, 1e-3);
    EXPECT_LT(plan.predicted.mfu, 1);
  }
  EXPECT_EQ(answer.plans[0].gap, 0);
  EXPECT_LE(answer.ideal, answer.plans[0].predicted.iteration);
}

TEST(Plan, SaysWhyAndWhatItRejected) {
  const PlanAnswer answer = Plan(Job("llama3-70b", 256, 4096), Cluster("dgx-h100", 8),
                                 {.fix = ParseFixed("tp=8,zero_stage=1").value()}).value();
  ASSERT_EQ(answer.plans.size(), 1u);
  const std::vector<std::string>& why = answer.plans[0].why;
  EXPECT_THAT(why, Contains(HasSubstr("all 64 GPUs")));
  EXPECT_THAT(why, Contains(HasSubstr("memory: ")));
  EXPECT_THAT(why, Contains(HasSubstr("time: compute ")));
  EXPECT_THAT(why, Contains(HasSubstr("runner-up ")));
  EXPECT_THAT(why, Contains(HasSubstr("not micro_batch=")));
  EXPECT_THAT(why, Contains(AllOf(HasSubstr("proved of the model"), HasSubstr("best by their bounds of "))));
}

// The table is ordered by simulated time, its bound is below all of it, and what is said to be proved has no gap.
TEST(Plan, TheOrderIsTheSimulations) {
  const JobSpec job = Job("llama3-70b", 256, 4096);
  const PlanAnswer answer =
      Plan(job, Cluster("dgx-h100", 8), {.top = 8, .fix = ParseFixed("pp=4,schedule=1f1b").value()}).value();
  ASSERT_EQ(answer.plans.size(), 8u);
  EXPECT_GE(answer.simulated, 32);
  const CostModel model = CostModel::Make(job, Cluster("dgx-h100", 8)).value();
  CostModel::Scratch scratch;
  Seconds before{0};
  for (const JobPlan& plan : answer.plans) {
    EXPECT_EQ(plan.predicted.iteration, model.EvaluateSimulated(plan.strategy, scratch).iteration);
    EXPECT_GE(plan.predicted.iteration, before);
    EXPECT_EQ(plan.lower_bound, answer.plans[0].lower_bound);
    before = plan.predicted.iteration;
  }
  EXPECT_LE(answer.plans[0].lower_bound, answer.plans[0].predicted.iteration);
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr(answer.plans[0].gap > 0 ? "not proved: the " : "proved of the model")));
}

// Between what fits and what is fastest: some operators stay whole after the forward pass, others are gathered again.
TEST(Plan, ShardingPerOperatorFillsTheMemoryAndSaysWhatItGains) {
  ClusterSpec cluster = Cluster("dgx-a100", 1);
  cluster.intra_node_rate = GigabytesPerSecond(12);
  const JobSpec job = Job("llama3-8b", 64, 4096);
  const FixedVariables one = ParseFixed("tp=1,pp=1,cp=1,micro_batch=2,recompute=none").value();
  const JobPlan best = Plan(job, cluster, {.fix = one}).value().plans.at(0);
  ASSERT_EQ(best.strategy.sharding, Sharding::kOperator);
  EXPECT_EQ(best.strategy.zero_stage, 3);
  const OperatorCount count = CountOperators(best.operators);
  EXPECT_EQ(count.total(), 2 * 32 + 2);
  EXPECT_GT(count.sharded, 0);
  EXPECT_GT(count.kept + count.split, 0);
  EXPECT_THAT(best.why, Contains(HasSubstr("operators (attention, MLP, embedding, head): of 66, ")));
  EXPECT_THAT(best.why, Contains(HasSubstr("faster than zero_stage=3, the fastest uniform sharding that fits")));
  FixedVariables uniform = one;
  uniform["sharding"] = 0;
  const JobPlan other = Plan(job, cluster, {.fix = uniform}).value().plans.at(0);
  EXPECT_LT(best.predicted.iteration, other.predicted.iteration);
  EXPECT_TRUE(other.operators.empty());
  EXPECT_THAT(other.why, testing::Not(Contains(HasSubstr("operators (attention"))));
  // No program's file can say it.
  const FixedVariables smaller = ParseFixed("tp=1,pp=1,cp=1,micro_batch=1").value();
  const JobPlan titan = Plan(job, cluster, {.fix = smaller, .framework = Framework::kTorchtitan}).value().plans.at(0);
  EXPECT_EQ(titan.strategy.sharding, Sharding::kUniform);
}

// 8 A100 do not hold all activations of 64 sequences, nor need they recompute all: mixing wins. A fix is for all layers.
TEST(Plan, StrategiesPerLayerAreComparedWhereTheyWin) {
  const JobSpec job = Job("llama3-8b", 64, 4096);
  const PlanAnswer answer = Plan(job, Cluster("dgx-a100", 1), {}).value();
  ASSERT_TRUE(answer.layers.has_value());
  EXPECT_LT(answer.layers->layers.iteration, answer.layers->uniform);
  EXPECT_EQ(answer.layers->layers.pp, answer.plans.at(0).strategy.pp);
  int64_t layers = 0;
  for (const LayerStage& stage : answer.layers->layers.stages) {
    for (const LayerRunPlan& run : stage.runs) layers += run.layers;
  }
  EXPECT_EQ(layers, 32);
  EXPECT_THAT(answer.plans[0].why, Contains(HasSubstr("strategies per layer, in an account of their own")));
  EXPECT_FALSE(Plan(job, Cluster("dgx-a100", 1), {.fix = {{"tp", 1}}}).value().layers.has_value());
  EXPECT_FALSE(Plan(Job("mixtral-8x7b", 64, 4096), Cluster("dgx-a100", 4), {}).value().layers.has_value());
}

TEST(Plan, ADpOnlyModelThatDoesNotFitIsNamed) {
  const PlanAnswer answer = Plan(Job("llama3-70b", 256, 4096), Cluster("dgx-h100", 8), {}).value();
  EXPECT_THAT(answer.plans.at(0).why, Contains(HasSubstr("not dp only: does not fit, ")));
}

TEST(Plan, ThreadsChangeNothing) {
  const PlanOptions options{.top = 5, .front_slack = 0.2};
  const JobSpec job = Job("llama3-8b", 64, 8192);
  const PlanAnswer one = Plan(job, Cluster("dgx-h100", 2), options).value();
  PlanSearch search = PlanSearch::Make(job, Cluster("dgx-h100", 2), options).value();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&search] { search.Work(); });
  }
  EXPECT_EQ(Text(search.Finish()), Text(one));
  EXPECT_GT(search.Progress().evaluated, 0);
  ASSERT_TRUE(search.Progress().best.has_value());
  // A bound, but that the prediction is simulated in whole picoseconds.
  EXPECT_LE(search.Progress().best->count(), one.plans[0].predicted.iteration.count() * (1 + 1e-9));
}

TEST(Plan, TheFrontTradesTimeForMemory) {
  const PlanAnswer answer = Plan(Job("gpt2", 64, 1024), Cluster("dgx-a100", 1), {.front_slack = 0.5}).value();
  ASSERT_GT(answer.front.size(), 2u);
  EXPECT_EQ(answer.front[0].iteration, answer.plans.at(0).predicted.iteration);
  for (size_t i = 1; i < answer.front.size(); ++i) {
    EXPECT_GT(answer.front[i].iteration, answer.front[i - 1].iteration);
    EXPECT_LT(answer.front[i].memory, answer.front[i - 1].memory);
    EXPECT_LE(answer.front[i].iteration, answer.front[0].iteration * 1.5);
  }
}

TEST(Plan, ExhaustiveSearchFindsTheSame) {
  const PlanOptions fixed{
      .top = 2, .fix = ParseFixed("tp=2,micro_batch=1,schedule=1f1b").value(), .node_budget = 1 << 30};
  PlanOptions exhaustive = fixed;
  exhaustive.exhaustive = true;
  const JobSpec job = Job("llama3-8b", 32, 4096);
  const PlanAnswer quick = Plan(job, Cluster("dgx-a100", 2), fixed).value();
  const PlanAnswer all = Plan(job, Cluster("dgx-a100", 2), exhaustive).value();
  EXPECT_EQ(Text(quick), Text(all));
  EXPECT_EQ(all.evaluated, all.strategies);
  EXPECT_EQ(all.strategies, quick.strategies);
  EXPECT_GT(quick.pruned, 0);
}

TEST(Plan, TooLittleMemorySaysByHowMuch) {
  const PlanAnswer answer = Plan(Job("gpt3-175b", 64, 2048), Cluster("dgx-a100", 1), {}).value();
  EXPECT_THAT(answer.plans, IsEmpty());
  ASSERT_EQ(answer.infeasible.size(), 2u);
  EXPECT_THAT(answer.infeasible[0], HasSubstr("memory: the leanest strategy, "));
  EXPECT_THAT(answer.infeasible[0], HasSubstr("recompute=full"));
  // 80 GiB by the error that a twentieth of the sources exceeds, 1.0899.
  EXPECT_THAT(answer.infeasible[0], HasSubstr("at most 73.4 GiB of a100-80 with 80.0 GiB keep the risk"));
  EXPECT_THAT(answer.infeasible[1], HasSubstr("GPUs in place of 8 its state would fit"));
}

TEST(Plan, WhereNothingIsLegalTheNearestChoiceIsNamed) {
  const auto reasons = [](const JobSpec& job, const PlanOptions& options) {
    const PlanAnswer answer = Plan(job, Cluster("dgx-a100", 2), options).value();
    EXPECT_THAT(answer.plans, IsEmpty());
    return answer.infeasible;
  };
  JobSpec job = Job("gpt2", 16, 1024);
  EXPECT_THAT(reasons(job, {.fix = {{"tp", 5}}}), Contains(HasSubstr("the nearest legal choice is tp=4")));
  EXPECT_THAT(reasons(job, {.fix = {{"micro_batch", 3}}}), Contains(HasSubstr("nearest legal choice is micro_batch=")));
  // 13 divides neither batch, heads nor tokens: only 13 stages for 12 layers, embedding and head are left.
  job.gpus = 13;
  job.global_batch = 8;
  EXPECT_THAT(reasons(job, {.fix = {{"pp", 1}}}), Contains(HasSubstr("the nearest legal choice is pp=13")));
  job.model.layers = 8;
  EXPECT_THAT(reasons(job, {}), Contains(HasSubstr("the nearest legal choice is --gpus 12")));
}

TEST(Plan, BadQuestionsAreErrorsThatNameFieldValueAndExpectation) {
  const auto message = [](const JobSpec& job, const PlanOptions& options) {
    const Result<PlanAnswer> answer = Plan(job, Cluster("dgx-a100", 1), options);
    if (answer) return std::string("accepted");
    EXPECT_EQ(answer.error().code(), Code::kInvalidArgument);
    return answer.error().message();
  };
  EXPECT_THAT(message(Job("gpt2", 0, 1024), {}), HasSubstr("global_batch: 0, expected a positive number"));
  EXPECT_THAT(message(Job("gpt2", 8, 4096), {}),
              HasSubstr("sequence: 4096, expected at most the 1024 positions of gpt2"));
  JobSpec image = Job("gpt2", 8, 256);
  image.model.image_tokens = 197;
  EXPECT_THAT(message(image, {}), HasSubstr("sequence: 256, expected the 197 tokens that gpt2 makes of an image"));
  EXPECT_THAT(message(Job("gpt2", 8, 1024), {.fix = {{"dq", 8}}}),
              HasSubstr("fix dq: unknown, expected one of dp, tp"));
  EXPECT_THAT(message(Job("gpt2", 8, 1024), {.fix = {{"recompute", 9}}}),
              HasSubstr("expected none, selective or full"));
  EXPECT_THAT(message(Job("gpt2", 8, 1024), {.top = 0}), HasSubstr("top: 0"));
  JobSpec job = Job("gpt2", 8, 1024);
  job.model.heads = 0;
  EXPECT_THAT(message(job, {}), HasSubstr("model heads: 0, expected a positive number"));
  job = Job("gpt2", 8, 1024);
  job.gpus = 9;
  EXPECT_THAT(message(job, {}), HasSubstr("gpus: 9, expected at most the 8 of cluster dgx-a100"));
}

TEST(Plan, ASpentBudgetIsSaidAndTheBoundHolds) {
  const JobSpec job = Job("llama3-8b", 64, 8192);
  const PlanAnswer whole = Plan(job, Cluster("dgx-a100", 2), {}).value();
  const PlanAnswer cut = Plan(job, Cluster("dgx-a100", 2), {.node_budget = 40}).value();
  EXPECT_FALSE(cut.complete);
  for (const JobPlan& plan : cut.plans) {
    EXPECT_LE(plan.lower_bound, whole.plans.at(0).predicted.iteration);
    EXPECT_GE(plan.gap, 0);
  }
}

}  // namespace
}  // namespace weft::planner

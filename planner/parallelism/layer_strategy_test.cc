#include "planner/parallelism/layer_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/calibration.h"
#include "planner/parallelism/memory_risk.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

using testing::HasSubstr;

/// 32 layers of Llama 2 7B's shape on eight A100, of which `gib` each may be used.
JobSpec Job(int64_t batch) {
  JobSpec job{
      .name = "llama2-7b", .model = FindModelPreset("llama3-8b").value(), .global_batch = batch, .sequence = 4096};
  job.model.kv_heads = job.model.heads;
  job.model.ffn_hidden = 11008;
  job.model.vocab = 32000;
  return job;
}
ClusterSpec Cluster(int64_t gib) {
  ClusterSpec cluster = FindClusterPreset("dgx-a100", 1).value();
  const double context = Calibration().Get("memory", "context");
  const double needed = (static_cast<double>(gib << 30) + context) * MemoryFactor(kDefaultRisk);
  cluster.device.memory = Bytes(static_cast<int64_t>(needed) + 16);
  return cluster;
}

TEST(LayerStrategy, ThirtyTwoLayersOnEightGpusAreProvedForAnyMemory) {
  Seconds last(1e9);
  for (const int64_t gib : {16, 20, 24, 32, 48, 78}) {
    const LayerPlan plan = PlanLayers(Job(16), Cluster(gib)).value();
    ASSERT_TRUE(plan.feasible) << gib;
    EXPECT_TRUE(plan.complete);
    ASSERT_EQ(static_cast<int64_t>(plan.stages.size()), plan.pp);
    int64_t layers = 0;
    for (const LayerStage& stage : plan.stages) {
      EXPECT_LE(stage.memory, Bytes(gib << 30));
      EXPECT_LE(stage.time, plan.iteration);
      for (const LayerRunPlan& run : stage.runs) {
        layers += run.layers;
        EXPECT_EQ(run.strategy.tp * run.strategy.cp * run.strategy.dp * plan.pp, 8);
      }
    }
    EXPECT_EQ(layers, 32);
    EXPECT_LE(plan.iteration, last * (1 + 1e-5)) << gib;
    last = plan.iteration;
  }
}

// Recomputing all layers is slower than needed and none does not fit: the optimum mixes.
TEST(LayerStrategy, LayersDifferWhereMemoryIsScarce) {
  const LayerPlan plan = PlanLayers(Job(16), Cluster(22)).value();
  ASSERT_TRUE(plan.feasible);
  size_t runs = 0;
  for (const LayerStage& stage : plan.stages) runs = std::max(runs, stage.runs.size());
  EXPECT_GT(runs, 1u);
}

TEST(LayerStrategy, OneStrategyForAllIsNeverFasterAndOftenSlower) {
  int slower = 0;
  for (const int64_t gib : {18, 22, 26, 40, 78}) {
    const LayerPlan free = PlanLayers(Job(16), Cluster(gib), Calibration(), {.pp = 1, .micro_batches = 2}).value();
    const LayerPlan one =
        PlanLayers(Job(16), Cluster(gib), Calibration(), {.pp = 1, .micro_batches = 2, .uniform = true}).value();
    if (!one.feasible) continue;
    ASSERT_TRUE(free.feasible);
    for (const LayerStage& stage : one.stages) EXPECT_EQ(stage.runs.size(), 1u);
    EXPECT_LE(free.iteration, one.iteration * (1 + 1e-5)) << gib;
    slower += free.iteration < one.iteration * 0.999 ? 1 : 0;
  }
  EXPECT_GT(slower, 0);
}

TEST(LayerStrategy, FixedDegreesAreKeptAndNeverBeatTheBest) {
  const Seconds best = PlanLayers(Job(16), Cluster(36)).value().iteration;
  for (const int64_t pp : {1, 2, 4, 8}) {
    const LayerPlan plan = PlanLayers(Job(16), Cluster(36), Calibration(), {.pp = pp, .micro_batches = 8}).value();
    if (!plan.feasible) continue;
    EXPECT_EQ(plan.pp, pp);
    EXPECT_EQ(plan.micro_batches, 8);
    EXPECT_GE(plan.iteration, best * (1 - 1e-5));
  }
}

TEST(LayerStrategy, WhatDoesNotFitIsInfeasibleAndWhatMakesNoSenseAnError) {
  EXPECT_FALSE(PlanLayers(Job(16), Cluster(4)).value().feasible);
  const auto message = [](const JobSpec& job) {
    const Result<LayerPlan> plan = PlanLayers(job, Cluster(36));
    if (plan) return std::string("accepted");
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
    return plan.error().message();
  };
  JobSpec job = Job(0);
  EXPECT_THAT(message(job), HasSubstr("global_batch 0"));
  job = Job(8);
  job.gpus = 9;
  EXPECT_THAT(message(job), HasSubstr("gpus: 9, expected 1 to the 8 of cluster dgx-a100"));
  job = Job(8);
  job.model.experts = 8;
  EXPECT_THAT(message(job), HasSubstr("expected a dense transformer"));
}

}  // namespace
}  // namespace weft::planner::parallelism

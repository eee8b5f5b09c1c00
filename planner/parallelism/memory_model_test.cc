#include "planner/parallelism/memory_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/cost_model.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

constexpr double kGiB = 0x1p30;

/// GPT-3 of arXiv 2205.05198: 96 layers of width 12288, sequence 2048.
ModelSpec Gpt175() {
  ModelSpec model = FindModelPreset("gpt3-175b").value();
  model.vocab = 51200;
  model.max_positions = 2048;
  return model;
}

JobSpec Job(int64_t batch) {
  return {.name = "j", .model = Gpt175(), .global_batch = batch, .sequence = 2048, .precision = Precision::kBf16, .gpus = 64};
}

Strategy Interleaved() {
  return {.dp = 1, .tp = 8, .pp = 8, .vpp = 3, .micro_batch = 1, .schedule = ScheduleKind::kInterleaved};
}

LayerBytes Layer(bool sequence_parallel) {
  const LayerKey key{.tp = 8, .sequence_parallel = sequence_parallel};
  return ComputeLayerBytes(Job(64), FindSoftwareStack("megatron-2022").value(), key, false);
}

// sbh (10 + 24/t + 5as/(ht)) and its variants, s = 2048, b = 1, h = 12288, a = 96, t = 8: sbh is 24 MiB, 5as/h is 80.
TEST(LayerBytes, AreThePapersClosedForms) {
  const double unit = 24.0 * 0x1p20;
  EXPECT_NEAR(Layer(false).none.count(), unit * (10 + 3 + 10), 1);
  EXPECT_NEAR(Layer(true).none.count(), unit * (34.0 / 8 + 10), 1);
  EXPECT_NEAR(Layer(false).selective.count(), unit * 13, 1);
  EXPECT_NEAR(Layer(true).selective.count(), unit * 34 / 8, 1);
  EXPECT_NEAR(Layer(false).full.count(), unit * 2, 1);
  EXPECT_NEAR(Layer(true).full.count(), unit * 2 / 8, 1);
}

// Stage 0 holds 8 (1 + 7/24) micro-batches of 12 layers: 1.2917 · 96 layers.
TEST(StageMemory, FirstStageOfTheInterleavedPipelineHoldsWhatThePaperShows) {
  const CostModel model =
      CostModel::Make(Job(64), FindClusterPreset("dgx-a100", 8).value(), {}, {.framework = FindFramework("megatron-2022").value()}).value();
  CostModel::Scratch scratch;
  const struct {
    bool split;
    Recompute recompute;
    double gib;
  } cases[] = {{false, Recompute::kNone, 66.84}, {true, Recompute::kNone, 41.41}, {false, Recompute::kSelective, 37.78},
               {true, Recompute::kSelective, 12.35}, {false, Recompute::kFull, 5.81}};
  for (const auto& expected : cases) {
    Strategy s = Interleaved();
    s.sequence_parallel = expected.split;
    s.recompute = expected.recompute;
    std::vector<MemoryUse> stages(8);
    model.EvaluateMemory(s, stages, scratch);
    EXPECT_NEAR(static_cast<double>(stages[0].activations.count()) / kGiB, expected.gib, 0.006);
    EXPECT_GT(stages[0].activations, stages[7].activations) << "later stages hold fewer micro-batches";
  }
}

// 18 bytes of 12 layers / 8, 45.57 GiB; and stage 0 with vocabulary / 8 and whole positions.
TEST(StageMemory, StateIsEighteenBytesPerParameter) {
  const CostModel model =
      CostModel::Make(Job(64), FindClusterPreset("dgx-a100", 8).value(), {}, {.framework = FindFramework("megatron-2022").value()}).value();
  CostModel::Scratch scratch;
  std::vector<MemoryUse> stages(8);
  model.EvaluateMemory(Interleaved(), stages, scratch);
  const auto state = [&](size_t i) {
    return static_cast<double>((stages[i].parameters + stages[i].gradients + stages[i].optimizer).count());
  };
  const double h = 12288, layers = 12 * (12 * h * h / 8 + (4 + 4 + 1) * h / 8 + 4 * h);
  EXPECT_NEAR(state(3), 18 * layers, 18 * 12 * 3 * h) << "biases of the row-parallel products are whole or split";
  EXPECT_NEAR(state(0) - state(3), 18 * (51200 * h / 8 + 2048 * h), 1);
  EXPECT_NEAR(state(3) / kGiB, 45.57, 0.05);
}

TEST(StateBytes, AreThoseOfEachScheme) {
  const auto total = [](StateScheme scheme, Precision precision) {
    const StateBytes bytes = StateBytesOf(scheme, precision, false);
    return (bytes.parameter + bytes.gradient + bytes.optimizer).count();
  };
  EXPECT_EQ(total(StateScheme::kMegatron, Precision::kBf16), 18);
  EXPECT_EQ(total(StateScheme::kMegatron, Precision::kFp16), 20);
  EXPECT_EQ(total(StateScheme::kZeroPaper, Precision::kBf16), 16);
  EXPECT_EQ(total(StateScheme::kFp32Master, Precision::kBf16), 16);
  EXPECT_EQ(total(StateScheme::kMegatron, Precision::kFp32), 16);
}

// Replicated 18, ZeRO-1 6 + 12/d, ZeRO-2 2 + 16/d, ZeRO-3 18/d, of P parameters on 64 ranks.
TEST(StageMemory, ZeroDividesWhatItsStageSays) {
  JobSpec job = Job(64);
  job.model.layers = 2;
  const CostModel model =
      CostModel::Make(job, FindClusterPreset("dgx-a100", 8).value(), {}, {.framework = FindFramework("megatron-2022").value()}).value();
  CostModel::Scratch scratch;
  Strategy s{.dp = 64, .micro_batch = 1};
  const double parameters = static_cast<double>(ParameterCount(job.model));
  const double expected[] = {18, 6 + 12.0 / 64, 2 + 16.0 / 64, 18.0 / 64};
  for (int64_t stage = 0; stage <= 3; ++stage) {
    s.zero_stage = stage;
    std::vector<MemoryUse> stages(1);
    model.EvaluateMemory(s, stages, scratch);
    const double state =
        static_cast<double>((stages[0].parameters + stages[0].gradients + stages[0].optimizer).count());
    EXPECT_NEAR(state / parameters, expected[stage], 1e-6) << "stage " << stage;
  }
}

// ZeRO-2 over three chunks: a third of the gradients is whole while a round of micro-batches is summed, 4·(1/3 + 1/8).
TEST(StageMemory, InterleavedGradientsAreWholeForOneChunk) {
  const CostModel model =
      CostModel::Make(Job(64), FindClusterPreset("dgx-a100", 64).value(), {}, {.framework = FindFramework("megatron-2022").value()}).value();
  CostModel::Scratch scratch;
  std::vector<MemoryUse> stages(8);
  Strategy s = Interleaved();
  s.dp = 8;
  s.zero_stage = 1;
  model.EvaluateMemory(s, stages, scratch);
  const double whole = static_cast<double>(stages[3].gradients.count());
  s.zero_stage = 2;
  ASSERT_EQ(s.vpp, 3);
  model.EvaluateMemory(s, stages, scratch);
  EXPECT_NEAR(static_cast<double>(stages[3].gradients.count()) / whole, 1.0 / 3 + 1.0 / 8, 1e-6);
  s.vpp = 1;
  s.schedule = ScheduleKind::k1F1B;
  model.EvaluateMemory(s, stages, scratch);
  EXPECT_NEAR(static_cast<double>(stages[3].gradients.count()) / whole, 1.0 / 8, 1e-6);
}

// Chunks of micro-batches held by stage, p = 8.
TEST(ChunksHeld, FollowTheSchedule) {
  const auto held = [](ScheduleKind kind, int64_t stage, int64_t v, int64_t m) { return ChunksHeld(kind, stage, 8, v, m); };
  EXPECT_EQ(held(ScheduleKind::kGpipe, 3, 1, 20), 20);
  EXPECT_EQ(held(ScheduleKind::k1F1B, 3, 1, 20), 5);
  EXPECT_EQ(held(ScheduleKind::kEager1F1B, 3, 1, 20), 9);
  EXPECT_EQ(held(ScheduleKind::kInterleaved, 0, 3, 64), 31) << "8 (1 + 7/24) of the whole stage";
  EXPECT_EQ(held(ScheduleKind::kInterleaved, 0, 3, 8), 24) << "all of them if there are only p";
  EXPECT_EQ(held(ScheduleKind::kInterleaved, 0, 3, 61), 31) << "a partial round counts as a whole one";
}

// fp8 keeps what its products read in one byte: norms' outputs, attention's and the MLP's second input.
TEST(LayerBytes, NarrowPrecisionsKeepNarrowInputs) {
  JobSpec job = Job(64);
  job.model = FindModelPreset("llama3-8b").value();
  const SoftwareStack stack = FindSoftwareStack("megatron-core").value();
  const double wide = ComputeLayerBytes(job, stack, {}, false).none.count();
  job.precision = Precision::kFp8;
  const double narrow = ComputeLayerBytes(job, stack, {}, false).none.count();
  const double h = 4096, f = 14336;
  EXPECT_NEAR(wide - narrow, 2048 * (2 * h + h + f), 1);
  EXPECT_NEAR(wide, 2048 * (12 * h + 4 * 1024 + 6 * f + 4 * 32), 1) << "section 4.2's total";
}

}  // namespace
}  // namespace weft::planner::parallelism

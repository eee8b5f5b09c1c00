// JobSpec::measured_compute: what was timed takes the place of what the model thinks a device does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/divisors.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

JobSpec Job(int64_t gpus, std::optional<double> measured = {}, const char* model = "gpt2") {
  JobSpec job{.name = "j", .model = FindModelPreset(model).value(), .global_batch = 64, .sequence = 1024, .gpus = gpus};
  if (measured) job.measured_compute = Seconds(*measured);
  return job;
}

CostModel Model(const JobSpec& job, Framework framework = Framework::kWeftTrainDdp) {
  return CostModel::Make(job, FindClusterPreset("dgx-a100", 2).value(), {}, {.framework = framework}).value();
}

Seconds Computed(const Estimate& e) { return e.compute + e.optimizer + e.overhead; }

/// The least that replicas on all GPUs compute for, with a micro-batch that fits.
Seconds Reference(const CostModel& model) {
  CostModel::Scratch scratch;
  Seconds least(1e9);
  for (const int64_t micro_batch : Divisors(model.job().global_batch / model.job().gpus)) {
    const Estimate e = model.EvaluateSimulated({.dp = model.job().gpus, .micro_batch = micro_batch}, scratch);
    if (e.memory.total() <= model.cluster().device.memory) least = std::min(least, Computed(e));
  }
  return least;
}

constexpr Framework kAll[] = {Framework::kAny, Framework::kMegatron, Framework::kTorchtitan, Framework::kDeepspeed, Framework::kWeftTrainDdp};

TEST(MeasuredCompute, IsWhatTheReferenceTakes) {
  for (const Framework framework : kAll) {
    for (const double measured : {1e-3, 2.0, 50.0}) {
      EXPECT_NEAR(Reference(Model(Job(16, measured), framework)).count() / measured, 1, 1e-6) << FrameworkName(framework);
    }
  }
  EXPECT_NEAR(Reference(Model(Resized(Job(16, 2), 8, 64))).count(), 4, 4e-6) << "half the GPUs";
  EXPECT_NEAR(Reference(Model(Resized(Job(16, 2), 16, 32))).count(), 1, 1e-6) << "half the batch";
}

// Twice the time is twice each part of compute, for every strategy; what is on the wire stays.
TEST(MeasuredCompute, ScalesComputeAlike) {
  for (const Framework framework : kAll) {
    const CostModel one = Model(Job(16, 1), framework), two = Model(Job(16, 2), framework);
    CostModel::Scratch first, second;
    for (const Strategy& s : {Strategy{.dp = 16}, Strategy{.dp = 8, .tp = 2, .micro_batch = 2}, Strategy{.dp = 4, .pp = 4},
                              Strategy{.dp = 16, .zero_stage = 2, .recompute = Recompute::kFull}}) {
      const Estimate a = one.EvaluateSimulated(s, first), b = two.EvaluateSimulated(s, second);
      EXPECT_NEAR(b.compute / a.compute, 2, 1e-9);
      EXPECT_NEAR(b.optimizer / a.optimizer, 2, 1e-6);
      EXPECT_EQ(a.memory.total(), b.memory.total());
      const auto sent = [&](const CostModel& model, const Estimate& e, CostModel::Scratch& scratch) {
        Seconds seconds(0);
        for (const CommunicatorUse& use : model.Communicators(s, e, model.Lower(s, scratch))) seconds += use.seconds;
        return seconds.count();
      };
      EXPECT_NEAR(sent(one, a, first), sent(two, b, second), 1e-12);
    }
  }
}

TEST(MeasuredCompute, TheClosedFormStaysABound) {
  for (const double measured : {1e-4, 0.1, 30.0}) {
    for (const Framework framework : kAll) {
      const CostModel model = Model(Job(16, measured), framework);
      CostModel::Scratch scratch;
      for (const int64_t micro_batch : {1, 2, 4}) {
        for (const int64_t mebibytes : {1, 25, 400}) {
          Strategy s{.dp = 16, .micro_batch = micro_batch};
          s.bucket_bytes = Bytes(mebibytes << 20);
          ASSERT_LE(model.Evaluate(s, scratch).iteration, model.EvaluateSimulated(s, scratch).iteration * (1 + 1e-9));
        }
      }
    }
  }
}

// 64 sequences on 12 GPUs are 5 1/3 for each; a model that fits no GPU whole; a mixture; convolutions.
TEST(MeasuredCompute, HasAReferenceForEveryJob) {
  JobSpec convolutions = Job(16);
  convolutions.sequence = 1;
  convolutions.model = {.name = "cnn", .architecture = Architecture::kCnn3d, .layers = 2};
  convolutions.model.cnn_layers = {{.in_channels = 1, .out_channels = 16, .kernel = {3, 3, 3}, .extent = {8, 8, 8}},
                                   {.kind = Cnn3dKind::kDense, .in_channels = 16, .out_channels = 10, .extent = {8, 8, 8}}};
  struct Case {
    JobSpec job;
    Strategy strategy;
  };
  for (Case one : {Case{Job(12), {.dp = 4, .pp = 3}}, Case{Job(16, {}, "gpt3-175b"), {.dp = 4, .tp = 4}},
                   Case{Job(16, {}, "mixtral-8x7b"), {.dp = 16}}, Case{convolutions, {.dp = 16}}}) {
    one.job.measured_compute = Seconds(2);
    const CostModel model = Model(one.job, Framework::kAny);
    CostModel::Scratch scratch;
    ASSERT_FALSE(model.WhyIllegal(one.strategy)) << *model.WhyIllegal(one.strategy);
    const double seconds = Computed(model.Evaluate(one.strategy, scratch)).count();
    EXPECT_TRUE(seconds > 1 && seconds < 4) << one.job.model.name << " " << seconds;
  }
}

TEST(MeasuredCompute, MustBeATime) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const auto model = CostModel::Make(Job(8, bad), FindClusterPreset("dgx-a100", 1).value());
    ASSERT_FALSE(model);
    EXPECT_THAT(model.error().message(), testing::HasSubstr("measured_compute: "));
    EXPECT_THAT(model.error().message(), testing::HasSubstr("s, expected a positive time"));
  }
}

// 72 B L s h² (1 + s/6h + V/12hL), B = 64; the formula leaves out the biases, less than a thousandth.
TEST(ModelFlops, AreThePapersFormula) {
  const double B = 64, L = 12, h = 768, s = 1024, V = 50257;
  EXPECT_NEAR(Model(Job(16)).model_flops().count() / (72 * B * L * s * h * h * (1 + s / (6 * h) + V / (12 * h * L))), 1, 1e-3);
}

}  // namespace
}  // namespace weft::planner::parallelism

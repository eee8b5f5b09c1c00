#include "planner/parallelism/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/collectives/ring.h"
#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

using testing::ElementsAre;

JobSpec Gpt2Job() {
  return {.name = "job", .model = FindModelPreset("gpt2").value(), .global_batch = 64, .sequence = 1024,
          .precision = Precision::kFp32, .gpus = 16};
}

TEST(Divisors, AreAscendingAndComplete) {
  EXPECT_THAT(Divisors(1), ElementsAre(1));
  EXPECT_THAT(Divisors(36), ElementsAre(1, 2, 3, 4, 6, 9, 12, 18, 36));
  EXPECT_THAT(Divisors(13), ElementsAre(1, 13));
}

// 124,439,808 parameters: 4 + 4 + 8 bytes in fp32, 2 + 4 + 12 in bf16.
TEST(DataParallelMemory, StateIsSixteenOrEighteenBytesPerParameter) {
  JobSpec job = Gpt2Job();
  const MemoryUse fp32 = DataParallelMemory(job, 1, Recompute::kNone);
  EXPECT_EQ((fp32.parameters + fp32.gradients + fp32.optimizer).count(), int64_t{124'439'808} * 16);
  job.precision = Precision::kBf16;
  const MemoryUse bf16 = DataParallelMemory(job, 1, Recompute::kNone);
  EXPECT_EQ(bf16.parameters.count(), int64_t{124'439'808} * 2);
  EXPECT_EQ((bf16.parameters + bf16.gradients + bf16.optimizer).count(), int64_t{124'439'808} * 18);
}

// Twelve layer inputs, one layer while it is recomputed, embedding mask and head.
TEST(DataParallelMemory, RecomputationKeepsInputsAndOneLayer) {
  const JobSpec job = Gpt2Job();
  const std::vector<LayerCost> layers = LayerCosts(job.model, 1024, 2, 4);
  const Bytes input(int64_t{2} * 1024 * 768 * 4);
  EXPECT_EQ(DataParallelMemory(job, 2, Recompute::kFull).activations,
            12 * input + layers[1].activations + layers.front().activations + layers.back().activations);
}

// Two nodes of two GPUs, 80 Gbit/s inside, 8 Gbit/s out, no latency. Flat: 2·3/4 S at 8 Gbit/s. Hierarchical:
// 2·1/2 S at 80 + 2·1/2 S/2 per GPU at 4 each: S (1/80 + 1/8) against S·1.5/8: 0.1375 against 0.1875.
TEST(ChooseAllReduce, HierarchyWinsWhereTheNicIsTheBottleneck) {
  ClusterSpec cluster{.name = "c", .nodes = 2, .gpus_per_node = 2, .device = *FindDevice("cpu"),
                      .intra_node_rate = GigabitsPerSecond(80), .nic_rate = GigabitsPerSecond(8)};
  cluster.network_efficiency = 1;
  const AllReduceCost cost = ChooseAllReduce(cluster, 4, Bytes(1'000'000'000));
  EXPECT_TRUE(cost.hierarchical);
  EXPECT_NEAR(RingTime(Collective::kAllReduce, 4, Bytes(1'000'000'000), cost.rate, cost.step_latency).count(),
              8 * (1. / 80 + 1. / 8), 1e-9);
  EXPECT_FALSE(ChooseAllReduce(cluster, 2, Bytes(1000)).hierarchical) << "one node";
  EXPECT_EQ(ChooseAllReduce(cluster, 2, Bytes(1000)).rate, GigabitsPerSecond(80));
}

// Three hops of latency in a flat ring of 2 x 2: (1 inside, 1 out) in the mean. Both latencies of small messages.
TEST(ChooseAllReduce, LatencyIsOfBothKindsOfHop) {
  ClusterSpec cluster{.name = "c", .nodes = 2, .gpus_per_node = 1, .device = *FindDevice("cpu"),
                      .intra_node_rate = GigabitsPerSecond(80), .nic_rate = GigabitsPerSecond(8),
                      .intra_latency = Seconds(1e-6), .nic_latency = Seconds(9e-6)};
  EXPECT_NEAR(ChooseAllReduce(cluster, 2, Bytes(1)).step_latency.count(), 9e-6, 1e-15);
}

TEST(PredictDataParallel, AMeasuredTimeReplacesTheModel) {
  JobSpec job = Gpt2Job();
  job.gpus = 4;
  job.measured_compute = Seconds(2);
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 1).value();
  EXPECT_NEAR(PredictDataParallel(job, cluster, {.dp = 4}, false).compute.count(), 2, 1e-9);
  EXPECT_NEAR(PredictDataParallel(job, cluster, {.dp = 2}, false).compute.count(), 4, 1e-9);
}

// 72 B L s h² (1 + s/6h + V/12hL), B = 64.
TEST(ModelFlops, AreThePapersFormula) {
  const double B = 64, L = 12, h = 768, s = 1024, V = 50257;
  EXPECT_NEAR(ModelFlops(Gpt2Job()).count() / (72 * B * L * s * h * h * (1 + s / (6 * h) + V / (12 * h * L))), 1, 1e-12);
}

// Branch and bound is only as true as this.
TEST(DataParallelBound, NeverExceedsThePrediction) {
  for (const char* preset : {"dgx-v100", "dgx-a100", "dgx-h100"}) {
    for (const int64_t nodes : {1, 2, 16}) {
      const ClusterSpec cluster = FindClusterPreset(preset, nodes).value();
      JobSpec job = Gpt2Job();
      job.gpus = nodes * 8;
      job.global_batch = 256;
      for (const int64_t dp : Divisors(job.gpus)) {
        for (const int64_t micro_batch : Divisors(job.global_batch / dp)) {
          for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
            const Strategy strategy{.dp = dp, .micro_batch = micro_batch, .recompute = recompute};
            const double predicted =
                PredictDataParallel(job, cluster, strategy, false).predicted.iteration.count();
            ASSERT_LE(DataParallelBound(job, cluster, dp, recompute).count(), predicted * (1 + 1e-12))
                << preset << " " << nodes << " dp " << dp << " micro " << micro_batch;
          }
        }
      }
    }
  }
}

// A plan once said "bucket 400 MiB" for a model with less than a mebibyte of gradients.
TEST(PredictDataParallel, NoBucketIsLargerThanTheGradients) {
  JobSpec job = Gpt2Job();
  job.model.layers = 2;
  job.model.hidden = 64;
  job.model.heads = job.model.kv_heads = 4;
  job.model.head_dim = 16;
  job.model.ffn_hidden = 256;
  job.model.vocab = 1000;
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 2).value();
  ASSERT_LT(GradientBytes(job), Bytes(1 << 20));
  const Strategy strategy{.dp = 16, .micro_batch = 4};
  const DataParallelTime time = PredictDataParallel(job, cluster, strategy, false);
  EXPECT_EQ(time.bucket, GradientBytes(job));
  // One bucket of all gradients: what a larger one would have meant.
  Strategy large = strategy;
  large.bucket_bytes = Bytes(400 << 20);
  EXPECT_EQ(PredictDataParallel(job, cluster, large, true).predicted.iteration, time.predicted.iteration);
}

}  // namespace
}  // namespace weft::planner

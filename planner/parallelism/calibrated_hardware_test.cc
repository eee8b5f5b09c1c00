#include "planner/parallelism/calibrated_hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/data_time.h"
#include "planner/parallelism/halo_exchange_time.h"
#include "planner/parallelism/moe_time.h"
#include "planner/parallelism/partition.h"

namespace weft::planner::inline parallelism {
namespace {

using namespace literals;
using testing::HasSubstr;

/// 100 processors of 10 GFLOP/s, 1 TB/s of memory, nodes of 8; nothing but what a test asks for costs time.
CalibratedHardware Simple() {
  CalibratedHardware m;
  m.gemm_rate = m.gemm16_rate = m.flash_rate = FlopsPerSecond(1e12);
  m.processors = 100;
  m.wave = 1;
  m.memory_rate = GigabytesPerSecond(1000);
  m.network.gpus_per_node = 8;
  m.network.intra_rate = m.network.direct_intra_rate = 100e9;
  m.network.nic_rate = 10e9;
  return m;
}

// 100 tiles of 256 × 128 are one wave; one more tile costs a second one.
TEST(GemmTime, CountsWholeWavesOfTiles) {
  const CalibratedHardware m = Simple();
  const GemmShape one_wave{256 * 10, 128 * 10, 65536};
  const FlopsPerSecond rate(1e12);
  const Seconds full = GemmTime(m, rate, one_wave, 2_B, 2_B);
  EXPECT_NEAR(full.count(), 2.0 * 2560 * 1280 * 65536 / 1e12, 1e-9);
  const Seconds more = GemmTime(m, rate, {256 * 10 + 1, 128 * 10, 65536}, 2_B, 2_B);
  EXPECT_GT(more, full * 1.2) << "smaller tiles soften it, and pay for that";
}

TEST(GemmTime, IsBoundByMemoryWhenThin) {
  const double bytes = 2 * (64.0 * 8192 + 8192.0 * 8192 + 64.0 * 8192);
  EXPECT_NEAR(GemmTime(Simple(), FlopsPerSecond(1e15), {64, 8192, 8192}, 2_B, 2_B).count(), bytes / 1e12, 1e-9);
}

TEST(GemmTime, WantsExtentsInStepsOfEight) {
  const CalibratedHardware m = Simple();
  const FlopsPerSecond rate(1e12);
  EXPECT_GT(GemmTime(m, rate, {2560, 1280, 108}, 2_B, 2_B), 5 * GemmTime(m, rate, {2560, 1280, 112}, 2_B, 2_B));
}

// Inside a node (n-1)/n S at NVLink's rate; over two nodes the eight ranks of a node share eight NICs.
TEST(GatherTime, IsTheSlowestHopOfTheRing) {
  CalibratedHardware m = Simple();
  EXPECT_NEAR(GatherTime(m.network, {8, 1}, 8e9), 7.0 / 8 * 8e9 / 100e9, 1e-12);
  EXPECT_NEAR(GatherTime(m.network, {16, 1}, 8e9), 15.0 / 16 * 8e9 / 80e9, 1e-12);
  EXPECT_NEAR(GatherTime(m.network, {2, 8}, 8e9), 1.0 / 2 * 8e9 / 10e9, 1e-12) << "one rank per node, one NIC";
  EXPECT_EQ(GatherTime(m.network, {1, 1}, 8e9), 0);
  m.network.nic_latency = 1e-3;
  m.network.intra_latency = 1e-4;
  EXPECT_NEAR(GatherTime(m.network, {16, 1}, 0), 2 * 7e-4 + 1e-3, 1e-12);
}

TEST(AllReduceTime, TakesTheTreeWhereLatencyRules) {
  CalibratedHardware m = Simple();
  m.network.nic_latency = 1e-3;
  EXPECT_NEAR(AllReduceTime(m.network, {512, 1}, 0), 2 * 6e-3, 1e-12) << "log2 of 64 nodes, up and down";
  EXPECT_NEAR(AllReduceTime(m.network, {16, 1}, 8e9), 2 * GatherTime(m.network, {16, 1}, 8e9), 1e-12);
}

// 64 MiB held, 7/8 of it leaves.
TEST(AllToAllTime, MovesAllButItsOwnShare) {
  EXPECT_NEAR(AllToAllTime(Simple().network, {8, 1}, 0x1p26), 56 * 0x1p20 / 100e9, 1e-12);
  EXPECT_NEAR(AllToAllTime(Simple().network, {16, 1}, 16e9), 8e9 / 10e9, 1e-12) << "half of it crosses nodes";
}

TEST(ExpectedNodes, AreHypergeometric) {
  EXPECT_NEAR(ExpectedNodes(8, 2, 1), 1, 1e-12);
  EXPECT_NEAR(ExpectedNodes(4, 1, 4), 1, 1e-12);
  // Two of four experts on two nodes: both on one node with probability 2 · C(2,2)/C(4,2) = 1/3.
  EXPECT_NEAR(ExpectedNodes(4, 2, 2), 2 - 1.0 / 3, 1e-12);
}

// 2 Φ w over d = 2 nodes' NICs by either algorithm; d - 1 of d shares to and from servers.
TEST(DataTime, ExchangesWhatTheSchemeSends) {
  const CalibratedHardware m = Simple();
  const SoftwareStack stack{.name = "test"};
  StageShape shape;
  shape.dense_parameters = 1e9;
  Strategy s{.dp = 16};
  s.bucket_bytes = Bytes(int64_t{1} << 40);
  const StateBytes state{2_B, 4_B, 12_B, 2_B, 2_B};
  EXPECT_NEAR(ComputeDataTime(m, stack, s, state, shape).gradients.count(), 2 * 15.0 / 16 * 2e9 / 80e9, 1e-9);
  s.data_sync = DataSync::kParameterServer;
  EXPECT_NEAR(ComputeDataTime(m, stack, s, state, shape).gradients.count(), 2 * 15.0 / 16 * 2e9 / 10e9, 1e-9);
  s.data_sync = DataSync::kRing;
  s.zero_stage = 1;
  const DataTime sharded = ComputeDataTime(m, stack, s, state, shape);
  EXPECT_NEAR(sharded.gradients.count(), 15.0 / 16 * 2e9 / 80e9, 1e-9);
  EXPECT_NEAR(sharded.parameters.count(), 15.0 / 16 * 2e9 / 80e9, 1e-9);
  EXPECT_NEAR(sharded.optimizer.count(), 30e9 / 16 / 1e12, 1e-9);
}

// HSDP: gathers stay in the node, gradients cross once, an eighth of them per GPU.
TEST(UnitTime, HybridShardingGathersInsideTheNode) {
  const CalibratedHardware m = Simple();
  const SoftwareStack stack{.name = "test"};
  const StateBytes state{4_B, 4_B, 8_B, 2_B, 2_B};
  Strategy s{.dp = 16, .zero_stage = 3, .shard_group = 8};
  const UnitTime unit = ComputeUnitTime(m, stack, s, state, 1e9);
  EXPECT_NEAR(unit.gather.count(), 7.0 / 8 * 2e9 / 100e9, 1e-9);
  EXPECT_NEAR(unit.scatter.count(), 7.0 / 8 * 2e9 / 100e9 + 2 * 0.5 * 2e9 / 8 / 10e9, 1e-9);
}

// DeepSpeed's ZeRO-1 and 2 sum the bucket on all ranks (runtime/zero/stage_1_and_2.py, use_multi_rank_bucket_allreduce): both
// ways, twice 15/16 of 2 Φ, once an iteration at stage 1 and with every micro-batch at stage 2; what is gathered after the
// step stays 15/16.
TEST(DataTime, DeepspeedSumsWhatItShards) {
  const CalibratedHardware m = Simple();
  const SoftwareStack stack = FindSoftwareStack("deepspeed").value();
  StageShape shape;
  shape.dense_parameters = 1e9;
  Strategy s{.dp = 16, .zero_stage = 1};
  s.bucket_bytes = Bytes(int64_t{1} << 40);
  const StateBytes state{2_B, 2_B, 12_B, 2_B, 2_B};
  const DataTime time = ComputeDataTime(m, stack, s, state, shape);
  EXPECT_NEAR(time.gradients.count(), 2 * 15.0 / 16 * 2e9 / 80e9, 1e-9);
  EXPECT_NEAR(time.parameters.count(), 15.0 / 16 * 2e9 / 80e9, 1e-9);
  s.zero_stage = 2;
  EXPECT_NEAR(ComputeUnitTime(m, stack, s, state, 1e9).scatter.count(), 2 * 15.0 / 16 * 2e9 / 80e9, 1e-9);
  EXPECT_NEAR(ComputeDataTime(m, stack, s, state, shape).gradients.count(), 0, 1e-12);
  s.zero_stage = 3;
  EXPECT_NEAR(ComputeUnitTime(m, stack, s, state, 1e9).scatter.count(), 15.0 / 16 * 2e9 / 80e9, 1e-9) << "stage 3 scatters";
}

// FSDP2 under a pipeline sums once, after the last micro-batch: nothing per unit, and all of it once.
TEST(DataTime, Fsdp2UnderAPipelineSumsOnce) {
  const CalibratedHardware m = Simple();
  const SoftwareStack stack = FindSoftwareStack("torchtitan").value();
  StageShape shape;
  shape.dense_parameters = 1e9;
  Strategy s{.dp = 16, .pp = 2, .zero_stage = 3, .keep_after_forward = true};
  s.bucket_bytes = Bytes(int64_t{1} << 40);
  const StateBytes state{4_B, 4_B, 8_B, 2_B, 4_B};
  EXPECT_NEAR(ComputeDataTime(m, stack, s, state, shape).gradients.count(), 15.0 / 16 * 4e9 / 80e9, 1e-9);
  s.pp = 1;
  EXPECT_NEAR(ComputeDataTime(m, stack, s, state, shape).gradients.count(), 0, 1e-12) << "unit by unit, with every micro-batch";
  EXPECT_NEAR(ComputeUnitTime(m, stack, s, state, 1e9).scatter.count(), 15.0 / 16 * 4e9 / 80e9, 1e-9);
}

TEST(StageLayers, SpareEmbeddingAndHead) {
  const auto all = [](int64_t layers, int64_t pp) {
    std::vector<int64_t> stages;
    for (int64_t i = 0; i < pp; ++i) {
      EXPECT_EQ(StageBegin(layers, pp, i + 1) - StageBegin(layers, pp, i), StageLayers(layers, pp, i)) << layers << " " << i;
      stages.push_back(StageLayers(layers, pp, i));
    }
    return stages;
  };
  EXPECT_THAT(all(12, 4), testing::ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(all(22, 8), testing::ElementsAre(2, 3, 3, 3, 3, 3, 3, 2));
  EXPECT_THAT(all(61, 4), testing::ElementsAre(15, 16, 15, 15));
  EXPECT_THAT(all(5, 1), testing::ElementsAre(5));
}

// One plane of 64 × 64 positions, 16 channels, 2 samples, 2 bytes, for a kernel of three; none without a cut.
TEST(HaloBytes, AreThePlanesThatTheKernelNeeds) {
  Cnn3dLayer layer{.kind = Cnn3dKind::kConvolution, .in_channels = 16, .out_channels = 32, .kernel = {3, 3, 3},
                   .extent = {32, 64, 64}};
  EXPECT_EQ(HaloBytes(layer, 2, 4, 2_B), Bytes(2 * 2 * 16 * 64 * 64));
  EXPECT_EQ(HaloBytes(layer, 2, 1, 2_B), 0_B);
  layer.kernel = {1, 1, 1};
  EXPECT_EQ(HaloBytes(layer, 2, 4, 2_B), 0_B);
  layer.kernel = {3, 3, 3};
  EXPECT_EQ(CnnForwardFlops(layer), Flops(2.0 * 16 * 32 * 27 * 32 * 64 * 64));
}

// Each of four slabs adds up its own quarter, and a sum of 16 channels of 2 samples goes over them: 2 bytes each. Nothing is
// gathered for the dense layer behind it, which all ranks compute; one that reads a volume has its input gathered, and a quarter
// of the work.
TEST(HaloExchangeTime, OfAGlobalPoolingIsASumOverTheSlabs) {
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 1).value();
  const SoftwareStack stack = FindSoftwareStack("megatron-core").value();
  const CalibratedHardware m = MakeCalibratedHardware(cluster, Precision::kBf16, stack, Calibration()).value();
  JobSpec job{.name = "j", .precision = Precision::kBf16};
  job.model = {.name = "cnn", .architecture = Architecture::kCnn3d, .layers = 2};
  job.model.cnn_layers = {
      {.kind = Cnn3dKind::kGlobalPooling, .in_channels = 16, .out_channels = 16, .extent = {8, 8, 8}, .bias = false},
      {.kind = Cnn3dKind::kDense, .in_channels = 16, .out_channels = 10}};
  const LayerKey key{.tp = 4, .micro_batch = 2};
  std::vector<Operation> pooling, dense;
  EXPECT_EQ(HaloExchangeTime(job, m, key, 0, &pooling).forward.flops, Flops(2 * 16 * 512 / 4));
  ASSERT_EQ(pooling.size(), 1u);
  EXPECT_EQ(pooling[0].kind, OperationKind::kAllReduce);
  EXPECT_EQ(pooling[0].pass, OperationPass::kForward);
  EXPECT_EQ(pooling[0].bytes, 2 * 2 * 16);
  EXPECT_EQ(HaloExchangeTime(job, m, key, 1, &dense).forward.flops, Flops(2 * 2 * 16 * 10));
  EXPECT_TRUE(dense.empty());
  EXPECT_EQ(HaloExchangeBytes(job, key, 1).none, Bytes(2 * 2 * 16));
  job.model.cnn_layers[0].kind = Cnn3dKind::kPooling;
  EXPECT_EQ(HaloExchangeTime(job, m, key, 1, &dense).forward.flops, Flops(2 * 2 * 16 * 10 / 4));
  EXPECT_EQ(dense.size(), 2u);
}

TEST(MakeCalibratedHardware, NamesAConstantThatIsMissing) {
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 1).value();
  const SoftwareStack stack = FindSoftwareStack("megatron-core").value();
  const auto hardware = MakeCalibratedHardware(cluster, Precision::kBf16, stack, Calibration(std::vector<CalibrationConstant>()));
  ASSERT_FALSE(hardware.has_value());
  EXPECT_EQ(hardware.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(hardware.error().message(), HasSubstr("stack megatron-core"));
}

// FlashAttention 2 was made for Ampere: on Hopper the libraries' own kernels are faster. CUDA graphs take the host out.
TEST(MakeCalibratedHardware, HasTheProgramsKernels) {
  const Calibration calibration;
  const auto of = [&](const char* preset, const char* stack) {
    return MakeCalibratedHardware(FindClusterPreset(preset, 1).value(), Precision::kBf16, FindSoftwareStack(stack).value(), calibration).value();
  };
  EXPECT_LT(of("dgx-h100", "torchtitan").flash_rate, of("dgx-h100", "megatron-core").flash_rate);
  EXPECT_EQ(of("dgx-a100", "torchtitan").flash_rate, of("dgx-a100", "megatron-core").flash_rate);
  EXPECT_LT(of("dgx-a100", "llm-foundry").flash_rate, of("dgx-a100", "megatron-core").flash_rate);
  EXPECT_GT(of("dgx-h100", "megatron-core").moe_host, Seconds(0));
  EXPECT_EQ(of("dgx-h100", "nemo-graphs").moe_host, Seconds(0));
  EXPECT_EQ(of("dgx-h100", "megatron-core").tensor_hidden, 0);
  EXPECT_GT(of("dgx-h100", "nemo-2026").tensor_hidden, 0);
}

// The slowest of twice as many GPUs takes a little longer; the network does not.
TEST(MakeCalibratedHardware, WaitsForTheSlowestGpu) {
  const Calibration calibration;
  const auto of = [&](int64_t nodes) {
    return MakeCalibratedHardware(FindClusterPreset("dgx-h100", nodes).value(), Precision::kBf16, FindSoftwareStack("megatron-core").value(),
                                  calibration).value();
  };
  const double each = calibration.Get("gpu", "straggling");
  EXPECT_NEAR(of(1).gemm_rate.value() / of(2).gemm_rate.value(), 1 + each, 1e-9);
  EXPECT_NEAR(of(1).gemm_rate.value() / of(1024).gemm_rate.value(), 1 + 10 * each, 1e-9);
  EXPECT_EQ(of(1).network.nic_rate, of(1024).network.nic_rate);
}

TEST(Calibration, FallsBackToTheParent) {
  const Calibration calibration(std::vector<CalibrationConstant>{{"gpu.flash", 0.5, 0, 1, false, "s"},
                                                                 {"gpu.h100.flash", 0.25, 0, 1, true, "s"}});
  EXPECT_EQ(calibration.Get("gpu.h100.96", "flash"), 0.25);
  EXPECT_EQ(calibration.Get("gpu.l40s", "flash"), 0.5);
}

TEST(Calibration, KeepsConstantsInTheirRange) {
  int64_t fitted = 0;
  for (const CalibrationConstant& c : Calibration().constants()) {
    EXPECT_GE(c.value, c.least) << c.name;
    EXPECT_LE(c.value, c.most) << c.name;
    fitted += c.fitted ? 1 : 0;
  }
  EXPECT_LE(fitted, 30);
}

}  // namespace
}  // namespace weft::planner::parallelism

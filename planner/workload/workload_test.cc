#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cluster/cluster_spec.h"
#include "planner/workload/device_spec.h"
#include "planner/workload/layer_cost.h"
#include "planner/workload/model_presets.h"
#include "planner/workload/model_spec.h"

namespace weft::planner {
namespace {

ModelSpec Gpt(int64_t layers, int64_t hidden, int64_t heads) {
  return {.name = "gpt", .layers = layers, .hidden = hidden, .heads = heads, .kv_heads = heads,
          .head_dim = hidden / heads, .ffn_hidden = 4 * hidden, .vocab = 51200, .max_positions = 2048};
}

TEST(ModelSpec, PresetsHaveTheirPublishedParameterCounts) {
  EXPECT_EQ(ParameterCount(FindModelPreset("gpt2").value()), 124'439'808);  // as transformers counts it
  EXPECT_EQ(ParameterCount(FindModelPreset("llama3-8b").value()), 8'030'261'248);
  EXPECT_EQ(ParameterCount(FindModelPreset("llama3-70b").value()), 70'553'706'496);
  EXPECT_FALSE(FindModelPreset("gpt9"));
}

// arXiv 2104.04473, table 1: 22, 175, 530 and 1008 billion.
TEST(ModelSpec, GptCountsAgreeWithThePapersFormula) {
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(48, 6144, 64))), 22.07e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(96, 12288, 96))), 174.62e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(105, 20480, 128))), 529.60e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(128, 25600, 160))), 1008.04e9, 0.01e9);
}

TEST(LayerCosts, ParametersSumToTheModels) {
  for (const char* name : {"gpt2", "llama3-8b"}) {
    const ModelSpec model = FindModelPreset(name).value();
    int64_t sum = 0;
    for (const LayerCost& layer : LayerCosts(model, 512, 2, 2)) sum += layer.parameters;
    EXPECT_EQ(sum, ParameterCount(model));
  }
}

// 2205.05198, appendix A: 72 B L s h² (1 + s/6h + V/12hL) for forward and backward, B = 1.
TEST(LayerCosts, WorkIsThePapersFormula) {
  const double L = 96, h = 12288, s = 2048, V = 51200;
  double flops = 0;
  for (const LayerCost& layer : LayerCosts(Gpt(96, 12288, 96), 2048, 1, 2)) {
    flops += (layer.forward + layer.backward).count();
  }
  EXPECT_NEAR(flops / (72 * L * s * h * h * (1 + s / (6 * h) + V / (12 * h * L))), 1, 1e-12);
}

// 2205.05198, equation 1: sbh (34 + 5as/h); 5as/h = 80 for 175 B. Full recomputation keeps 2sbh = 48 MiB.
TEST(LayerCosts, ActivationsAreThePapersFormula) {
  const ModelSpec model = Gpt(96, 12288, 96);
  const LayerCost kept = LayerCosts(model, 2048, 1, 2)[1];
  EXPECT_EQ(kept.name, "layer0");
  EXPECT_EQ(kept.activations, Bytes(int64_t{2048} * 12288 * 114));
  EXPECT_EQ(LayerCosts(model, 2048, 1, 2, Recompute::kFull)[1].activations, Bytes(48 << 20));
  EXPECT_EQ(LayerCosts(model, 2048, 3, 2)[1].activations, 3 * kept.activations);
}

// 12h + 4 kv·dh + 6f + 4a per token = 34h + 128 for Llama 3 8B: 12·4096 + 4·1024 + 6·14336 + 4·32.
TEST(LayerCosts, LlamaKeepsNoScores) {
  const LayerCost layer = LayerCosts(FindModelPreset("llama3-8b").value(), 8192, 1, 2)[1];
  EXPECT_EQ(layer.activations, Bytes(int64_t{8192} * (12 * 4096 + 4 * 1024 + 6 * 14336 + 4 * 32)));
}

TEST(LayerCosts, ATiedHeadHasOnlyTheFinalNorm) {
  const LayerCost head = LayerCosts(FindModelPreset("gpt2").value(), 1024, 1, 4).back();
  EXPECT_EQ(head.name, "head");
  EXPECT_EQ(head.parameters, 2 * 768);
  EXPECT_DOUBLE_EQ(head.forward.count(), 2.0 * 1024 * 768 * 50257);
}

TEST(DeviceSpec, KnownNamesAreFoundAndOthersAreNot) {
  for (const char* name : {"v100-32", "a100-40", "a100-80", "h100-80", "cpu"}) {
    const std::optional<DeviceSpec> device = FindDevice(name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(device->name, name);
    EXPECT_GT(device->memory, device->reserved);
    EXPECT_THAT(DeviceNames(), testing::HasSubstr(name));
  }
  EXPECT_FALSE(FindDevice("a100"));
}

TEST(ClusterSpec, PresetsHaveTheirNodesAndRates) {
  const ClusterSpec cluster = FindClusterPreset("dgx-a100", 384).value();
  EXPECT_EQ(cluster.nodes, 384);
  EXPECT_EQ(cluster.gpus_per_node, 8);
  EXPECT_EQ(cluster.device.name, "a100-80");
  EXPECT_DOUBLE_EQ(cluster.nic_rate.value(), 1.6e12);
  EXPECT_FALSE(FindClusterPreset("dgx-b900", 1));
  EXPECT_EQ(ClusterPresetNames(), "dgx-v100, dgx-a100, dgx-h100, dgx-h200, dgx-b200, gb200-nvl72");
}

}  // namespace
}  // namespace weft::planner

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/fabric/device_spec.h"
#include "planner/workload/layer_cost.h"
#include "planner/workload/model_presets.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline workload {
namespace {

ModelSpec Gpt(int64_t layers, int64_t hidden, int64_t heads) {
  return {.name = "gpt", .layers = layers, .hidden = hidden, .heads = heads, .kv_heads = heads,
          .head_dim = hidden / heads, .ffn_hidden = 4 * hidden, .vocab = 51200, .max_positions = 2048};
}

// arXiv 2104.04473, table 1: 22, 175, 530 and 1008 billion.
TEST(ModelSpec, GptCountsAgreeWithThePapersFormula) {
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(48, 6144, 64))), 22.07e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(96, 12288, 96))), 174.62e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(105, 20480, 128))), 529.60e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParameterCount(Gpt(128, 25600, 160))), 1008.04e9, 0.01e9);
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

// 2205.05198, section 5: selective recomputation leaves 34 sbh. Without dropout its masks and one copy of the scores go:
// 32 sbh and the softmax's 2as²b.
TEST(LayerCosts, SelectiveRecomputationAndNoDropoutKeepLess) {
  ModelSpec model = Gpt(96, 12288, 96);
  EXPECT_EQ(LayerCosts(model, 2048, 1, 2, Recompute::kSelective)[1].activations, Bytes(int64_t{2048} * 12288 * 34));
  model.dropout = false;
  EXPECT_EQ(LayerCosts(model, 2048, 1, 2)[1].activations, Bytes(int64_t{2048} * (12288 * 32 + 96 * 2048 * 2)));
  EXPECT_EQ(LayerCosts(model, 2048, 1, 2)[0].activations, Bytes(0));
  model.flash_attention = true;
  EXPECT_EQ(LayerCosts(model, 2048, 1, 2)[1].activations, Bytes(int64_t{2048} * (12288 * 32 + 4 * 96)));
}

// Mixtral, per token: 2 bytes of norms 4h, Q and output 2·4096, K and V 2·1024, two copies of 3·14336 inside and of h at
// both edges; router logits 4·8, log-sum-exp 4·32.
TEST(LayerCosts, AMixtureKeepsItsRoutedCopies) {
  const LayerCost layer = LayerCosts(FindModelPreset("mixtral-8x7b").value(), 4096, 1, 2)[1];
  const int64_t elements = 4 * 4096 + 2 * 4096 + 2 * 1024 + 2 * 3 * 14336 + 2 * 2 * 4096;
  EXPECT_EQ(layer.activations, Bytes(4096 * (2 * elements + 4 * 8 + 4 * 32)));
}

// DeepSeek-V3, a dense layer, per token: norms 4h, latents twice (as their norms take and give them) and the shared
// rotated key, Q and K 128·192, V and output 128·128, SwiGLU 3·18432.
TEST(LayerCosts, LatentAttentionKeepsLatentsAndHeads) {
  const LayerCost layer = LayerCosts(FindModelPreset("deepseek-v3").value(), 4096, 1, 2)[1];
  const int64_t elements = 4 * 7168 + 2 * (1536 + 512) + 64 + 2 * 128 * 192 + 2 * 128 * 128 + 3 * 18432;
  EXPECT_EQ(layer.activations, Bytes(4096 * (2 * elements + 4 * 128)));
}

// 2·(16 in · 8³ + 32 out · 4³) with a norm behind, its input alone without or with recomputation.
TEST(LayerCosts, AConvolutionKeepsWhatItsBackwardNeeds) {
  ModelSpec model{.name = "cnn", .architecture = Architecture::kCnn3d, .layers = 1};
  model.cnn_layers = {{.in_channels = 16, .out_channels = 32, .kernel = {3, 3, 3}, .stride = {2, 2, 2},
                       .extent = {8, 8, 7}, .normalised = true}};
  EXPECT_EQ(model.cnn_layers[0].OutputExtent(), (std::array<int64_t, 3>{4, 4, 4}));
  const Bytes input(2 * 3 * 16 * 8 * 8 * 7), output(2 * 3 * 32 * 64);
  EXPECT_EQ(LayerCosts(model, 1, 3, 2)[0].activations, input + output);
  EXPECT_EQ(LayerCosts(model, 1, 3, 2, Recompute::kFull)[0].activations, input);
  EXPECT_EQ(LayerCosts(model, 1, 3, 2)[0].parameters, 16 * 32 * 27 + 32 + 64);
}

TEST(LayerCosts, ATiedHeadHasOnlyTheFinalNorm) {
  const LayerCost head = LayerCosts(FindModelPreset("gpt2").value(), 1024, 1, 4).back();
  EXPECT_EQ(head.name, "head");
  EXPECT_EQ(head.parameters, 2 * 768);
  EXPECT_DOUBLE_EQ(head.forward.count(), 2.0 * 1024 * 768 * 50257);
}

TEST(DeviceSpec, KnownNamesAreFoundAndOthersAreNot) {
  for (const char* name : {"v100-16", "v100-32", "a100-40", "a100-80", "h100-80", "h100-pcie", "h100-96", "h800", "h200",
                           "b200", "gb200", "b300", "gb300", "l40s", "p40", "cpu"}) {
    const std::optional<DeviceSpec> device = FindDevice(name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(device->name, name);
    EXPECT_GT(device->memory, device->reserved);
    EXPECT_GT(device->memory_rate.value(), 0);
    EXPECT_FALSE(device->source.empty());
    EXPECT_TRUE(device->Supports(Precision::kFp32));
    EXPECT_THAT(DeviceNames(), testing::HasSubstr(name));
  }
  EXPECT_FALSE(FindDevice("a100"));
}

TEST(DeviceSpec, ARateThatTheDeviceLacksIsTheNextWiderOnes) {
  const DeviceSpec v100 = *FindDevice("v100-32"), h100 = *FindDevice("h100-80"), p40 = *FindDevice("p40");
  EXPECT_DOUBLE_EQ(v100.Peak(Precision::kBf16).value(), 125e12);
  EXPECT_DOUBLE_EQ(v100.Peak(Precision::kFp8).value(), 125e12);
  EXPECT_DOUBLE_EQ(v100.Peak(Precision::kTf32).value(), 15.7e12);
  EXPECT_FALSE(v100.Supports(Precision::kBf16));
  EXPECT_DOUBLE_EQ(h100.Peak(Precision::kFp4).value(), 1978.9e12);
  EXPECT_DOUBLE_EQ(h100.Peak(Precision::kBf16).value(), 989.4e12);
  EXPECT_DOUBLE_EQ(p40.Peak(Precision::kFp16).value(), 11.8e12);
}

TEST(Precision, EveryNameIsReadBack) {
  for (const char* name : {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"}) {
    EXPECT_EQ(PrecisionName(FindPrecision(name).value()), name);
  }
  EXPECT_FALSE(FindPrecision("int8"));
  EXPECT_EQ(PrecisionNames(), "fp32, tf32, fp16, bf16, fp8, fp4");
  EXPECT_EQ(StorageBytes(Precision::kTf32), 4);
  EXPECT_EQ(StorageBytes(Precision::kFp8), 2);
}

}  // namespace
}  // namespace weft::planner::workload

// Windows, encoders and models of images: what they are made of, and their work. Expected numbers by hand.
#include <gtest/gtest.h>

#include "planner/workload/model_presets.h"
#include "planner/workload/model_spec.h"

namespace weft::planner::inline workload {
namespace {

ModelSpec Windowed(AttentionWindow kind, int64_t window) {
  ModelSpec model = FindModelPreset("llama3-8b").value();
  model.window_kind = kind;
  model.attention_window = window;
  model.local_layers.assign(32, false);
  for (size_t layer = 0; layer < 32; layer += 2) model.local_layers[layer] = true;
  return model;
}

ModelSpec VitBase() {
  ModelSpec model{.name = "vit", .architecture = Architecture::kVit, .layers = 12, .hidden = 768, .heads = 12,
                  .kv_heads = 12, .head_dim = 64, .ffn_hidden = 3072, .max_positions = 197};
  model.causal = model.dropout = false;
  model.image_tokens = 197;
  model.patch_inputs = 3 * 16 * 16;
  model.head = HeadKind::kClasses;
  model.classes = 1000;
  return model;
}

// Of 8192² pairs: a half, the band of 8192·1024 − 1024²/2, chunks of 1024/2 each row.
TEST(AttendedPairs, AreThoseThatTheMaskLeaves) {
  const ModelSpec sliding = Windowed(AttentionWindow::kSliding, 1024), chunked = Windowed(AttentionWindow::kChunk, 1024);
  EXPECT_DOUBLE_EQ(AttendedPairs(sliding, 1, 8192), 8192.0 * 8192 / 2);
  EXPECT_DOUBLE_EQ(AttendedPairs(sliding, 0, 8192), 8192.0 * 1024 - 1024.0 * 512);
  EXPECT_DOUBLE_EQ(AttendedPairs(chunked, 0, 8192), 8192.0 * 512);
  EXPECT_DOUBLE_EQ(AttendedPairs(sliding, 0, 512), 512.0 * 256) << "a window wider than the sequence";
  EXPECT_DOUBLE_EQ(AttendedPairs(VitBase(), 0, 197), 197.0 * 197);
}

// Half of the layers compute a half, half of them 1/8 − 1/128 = 15/128.
TEST(AttendedPairs, MeanIsOverTheLayers) {
  EXPECT_DOUBLE_EQ(MeanAttendedShare(Windowed(AttentionWindow::kSliding, 1024), 8192), 0.5 * 0.5 + 0.5 * 15 / 128);
  EXPECT_EQ(MeanAttendedShare(FindModelPreset("llama3-8b").value(), 8192), 0.5);
  EXPECT_EQ(MeanAttendedShare(VitBase(), 197), 1);
}

// Dosovitskiy et al., arXiv 2010.11929, table 1: 86 million; with 1000 classes 86,567,656.
TEST(ModelSpec, AVisionTransformerHasPatchesAndClasses) {
  const ModelSpec model = VitBase();
  EXPECT_EQ(ParameterCount(model), 86'567'656);
  EXPECT_EQ(EmbeddingParameterCount(model), 768 * 768 + 768 + 768 + 197 * 768);
  EXPECT_EQ(HeadOutputs(model), 1000);
}

// Per layer: attention 4h² + 4h, MLP 8h² + 5h, six vectors 6h² + 6h, embedders 256h + h, h² + h and 1001h; h = 1152.
TEST(ModelSpec, ADiffusionTransformerModulatesEveryLayer) {
  ModelSpec model{.name = "dit", .architecture = Architecture::kDit, .layers = 28, .hidden = 1152, .heads = 16,
                  .kv_heads = 16, .head_dim = 72, .ffn_hidden = 4608, .max_positions = 256};
  model.learned_positions = model.causal = false;
  model.image_tokens = 256;
  model.patch_inputs = 16;
  model.patch_outputs = 32;
  model.condition_classes = 1001;
  model.head = HeadKind::kPatches;
  const int64_t h = 1152;
  EXPECT_EQ(LayerParametersOf(model, 0).modulation, 7 * h * h + (256 + 1 + 1 + 1001 + 6) * h);
  EXPECT_EQ(LayerParametersOf(model, 0).norms, 0);
  EXPECT_EQ(LayerParameterCount(model, 0), 26'682'624);
  EXPECT_EQ(ParameterCount(model), 749'826'464);
}

// Gemma 2: 4·3584 of norms; gpt-oss: 64 sinks, 32 + 32·(2·2880 + 2880) biases of router and experts.
TEST(ModelSpec, SandwichNormsSinksAndExpertBiasesCount) {
  ModelSpec gemma = FindModelPreset("llama3-8b").value(), oss = FindModelPreset("mixtral-8x7b").value();
  const int64_t norms = LayerParametersOf(gemma, 0).norms;
  gemma.norm_placement = NormPlacement::kSandwich;
  EXPECT_EQ(LayerParametersOf(gemma, 0).norms, 2 * norms);
  const LayerParameters before = LayerParametersOf(oss, 0);
  oss.attention_sinks = oss.router_bias = oss.expert_mlp_bias = true;
  const LayerParameters after = LayerParametersOf(oss, 0);
  EXPECT_EQ(after.attention - before.attention, 32);
  EXPECT_EQ(after.router - before.router, 8);
  EXPECT_EQ(after.routed - before.routed, 8 * (2 * 14336 + 4096));
}

}  // namespace
}  // namespace weft::planner::workload

#include "planner/workload/flops.h"

#include <gtest/gtest.h>

#include "planner/workload/model_presets.h"

namespace weft::planner {
namespace {

ModelSpec Gpt(int64_t layers, int64_t hidden, int64_t heads) {
  return {.name = "gpt", .layers = layers, .hidden = hidden, .heads = heads, .kv_heads = heads,
          .head_dim = hidden / heads, .ffn_hidden = 4 * hidden, .vocab = 51200, .max_positions = 2048};
}

struct Row {
  int64_t layers, hidden, heads, batch;
  double model_peta, hardware_peta;
};
// The four models of arXiv 2205.05198 (22B, 175B, 530B, 1T), s = 2048.
const Row kRows[] = {{48, 6144, 64, 4, 1.1, 1.5},
                     {96, 12288, 96, 64, 141.1, 188.0},
                     {105, 20480, 128, 280, 1852.2, 2468.4},
                     {128, 25600, 160, 512, 6425.9, 8565.1}};

TEST(CountFlops, GptIterationsHaveTheirPublishedWork) {
  for (const Row& row : kRows) {
    const ModelSpec model = Gpt(row.layers, row.hidden, row.heads);
    const IterationFlops full = CountFlops(model, 2048, row.batch, Recompute::kFull);
    EXPECT_NEAR(full.model.count() / 1e15, row.model_peta, 0.051);
    EXPECT_NEAR(full.hardware.count() / 1e15, row.hardware_peta, 0.051);
  }
}

TEST(CountFlops, RecomputationIsThePapersFormula) {
  const double V = 51200, s = 2048;
  for (const Row& row : kRows) {
    const auto L = static_cast<double>(row.layers), h = static_cast<double>(row.hidden);
    const double unit = static_cast<double>(row.batch) * L * s * h * h;
    const ModelSpec model = Gpt(row.layers, row.hidden, row.heads);
    const auto hardware = [&](Recompute recompute) {
      return CountFlops(model, 2048, row.batch, recompute).hardware.count();
    };
    EXPECT_NEAR(hardware(Recompute::kNone) / (72 * unit * (1 + s / (6 * h) + V / (12 * h * L))), 1, 1e-12);
    EXPECT_NEAR(hardware(Recompute::kSelective) / (72 * unit * (1 + s / (3 * h) + V / (12 * h * L))), 1, 1e-12);
    EXPECT_NEAR(hardware(Recompute::kFull) / (96 * unit * (1 + s / (6 * h) + V / (16 * h * L))), 1, 1e-12);
  }
}

TEST(CountFlops, SelectiveRecomputationIsFreeWhereNoScoresAreKept) {
  const ModelSpec model = FindModelPreset("llama3-8b").value();
  const IterationFlops work = CountFlops(model, 8192, 1, Recompute::kSelective);
  EXPECT_EQ(work.model, work.hardware);
}

TEST(CountFlops, ACausalHalfTakesHalfOfTheCore) {
  const ModelSpec model = FindModelPreset("llama3-8b").value();
  const double whole = CountFlops(model, 8192, 2, Recompute::kFull).hardware.count();
  const double half = CountFlops(model, 8192, 2, Recompute::kFull, ScoreWork::kCausalHalf).hardware.count();
  // 2 sequences · 32 layers · 4 passes · half of 4 s² h.
  EXPECT_NEAR((whole - half) / (2.0 * 32 * 4 * 2 * 8192 * 8192 * 4096), 1, 1e-9);
}

// One passes 6 FLOPs per active parameter and token, forward and backward; the token embedding is looked up, not multiplied,
// and norms do not count: for Mixtral 12.880 B − 32000·4096 − 65·4096.
TEST(CountFlops, AMixtureWorksOnItsActiveParameters) {
  const ModelSpec model = FindModelPreset("mixtral-8x7b").value();
  const int64_t s = 4096;
  const double core = 3 * AttentionCoreForward(model, s).count() * static_cast<double>(model.layers);
  const auto matrices = static_cast<double>(ActiveParameterCount(model) - 32000 * 4096 - 65 * 4096);
  const double expected = 6 * matrices * static_cast<double>(s) + core;
  EXPECT_NEAR(CountFlops(model, s, 1, Recompute::kNone).model.count() / expected, 1, 1e-12);
}

// The same for latent attention, whose core has queries of 192 and values of 128 per head; norms are 61·(2·7168 + 2048)
// and the final 7168.
TEST(CountFlops, LatentAttentionWorksOnItsMatrices) {
  const ModelSpec model = FindModelPreset("deepseek-v3").value();
  const int64_t s = 4096;
  EXPECT_DOUBLE_EQ(AttentionCoreForward(model, s).count(), 2.0 * 4096 * 4096 * 128 * (192 + 128));
  const double core = 3 * 61 * AttentionCoreForward(model, s).count();
  const auto matrices =
      static_cast<double>(ActiveParameterCount(model) - 129280 * 7168 - 61 * (2 * 7168 + 2048) - 7168);
  EXPECT_NEAR(CountFlops(model, s, 1, Recompute::kNone).model.count() / (6 * matrices * 4096 + core), 1, 1e-12);
}

// Two layers on 8³ voxels: 2 · 8³ · 1·16·27 and a dense 2 · 16·8³ · 10, times 3.
TEST(CountFlops, AConvolutionWorksOnEveryVoxel) {
  ModelSpec model{.name = "cnn", .architecture = Architecture::kCnn3d, .layers = 2};
  model.cnn_layers = {{.in_channels = 1, .out_channels = 16, .kernel = {3, 3, 3}, .extent = {8, 8, 8}},
                      {.kind = Cnn3dKind::kDense, .in_channels = 16, .out_channels = 10, .extent = {8, 8, 8}}};
  EXPECT_DOUBLE_EQ(CountFlops(model, 1, 5, Recompute::kNone).model.count(),
                   5 * 3 * (2.0 * 512 * 16 * 27 + 2.0 * 16 * 512 * 10));
  EXPECT_EQ(ParameterCount(model), 16 * 27 + 16 + 16 * 512 * 10 + 10);
}

}  // namespace
}  // namespace weft::planner

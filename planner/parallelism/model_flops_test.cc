// Model FLOPs as published measurements count them, so that a rate compares with theirs.
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "planner/parallelism/cost_model.h"
#include "planner/parallelism/model_operators.h"
#include "planner/workload/model_presets.h"

namespace weft::planner::inline parallelism {
namespace {

double ModelFlops(const ModelSpec& model, int64_t sequence, int64_t batch) {
  const JobSpec job{.name = "job", .model = model, .global_batch = batch, .sequence = sequence, .gpus = 1};
  return CostModel::Make(job, FindClusterPreset("dgx-a100", 1).value()).value().model_flops().count();
}

// The four models of arXiv 2205.05198 (22B, 175B, 530B, 1T), s = 2048, in PFLOPs; and the paper's formula. Biases, which it leaves
// out, are up to 0.012 %.
TEST(ModelFlops, OfGptAreThePapers) {
  struct Row {
    int64_t layers, hidden, heads, batch;
    double peta;
  };
  const Row rows[] = {{48, 6144, 64, 4, 1.1}, {96, 12288, 96, 64, 141.1}, {105, 20480, 128, 280, 1852.2}, {128, 25600, 160, 512, 6425.9}};
  for (const Row& row : rows) {
    const ModelSpec model{.name = "gpt", .layers = row.layers, .hidden = row.hidden, .heads = row.heads, .kv_heads = row.heads,
                          .head_dim = row.hidden / row.heads, .ffn_hidden = 4 * row.hidden, .vocab = 51200, .max_positions = 2048};
    const double flops = ModelFlops(model, 2048, row.batch);
    EXPECT_NEAR(flops / 1e15, row.peta, 0.051 + 1.2e-4 * row.peta);
    const double V = 51200, s = 2048, L = static_cast<double>(row.layers), h = static_cast<double>(row.hidden);
    const double B = static_cast<double>(row.batch);
    EXPECT_NEAR(flops / (72 * B * L * s * h * h * (1 + s / (6 * h) + V / (12 * h * L))), 1, 1.2e-4);
  }
}

/// Scores and values of all layers, forward and backward, for heads whose queries and values have these widths.
double Core(int64_t layers, int64_t heads, int64_t query, int64_t value, double sequence) {
  return 3 * static_cast<double>(layers * heads * (query + value)) * 2 * sequence * sequence;
}

// 6 FLOPs per active parameter and token; the token embedding is looked up, not multiplied, and norms do not count: for Mixtral
// 12.880 B - 32000·4096 - 65·4096.
TEST(ModelFlops, OfMoeAreThoseOfItsActiveParameters) {
  const ModelSpec model = FindModelPreset("mixtral-8x7b").value();
  const double s = 4096, matrices = static_cast<double>(ActiveParameterCount(model) - 32000 * 4096 - 65 * 4096);
  EXPECT_NEAR(ModelFlops(model, 4096, 1) / (6 * matrices * s + Core(32, 32, 128, 128, s)), 1, 1e-12);
}

// Latent attention has queries of 192 and values of 128 per head; norms are 61·(2·7168 + 2048) and the final 7168.
TEST(ModelFlops, OfLatentAttentionAreThoseOfItsMatrices) {
  const ModelSpec model = FindModelPreset("deepseek-v3").value();
  const double s = 4096;
  const auto matrices = static_cast<double>(ActiveParameterCount(model) - 129280 * 7168 - 61 * (2 * 7168 + 2048) - 7168);
  EXPECT_NEAR(ModelFlops(model, 4096, 1) / (6 * matrices * s + Core(61, 128, 192, 128, s)), 1, 1e-12);
}

// Two layers on 8³ voxels: 2 · 8³ · 1·16·27 and a dense 2 · 16·8³ · 10, times 3.
TEST(ModelFlops, OfAConvolutionAreThoseOfEveryVoxel) {
  ModelSpec model{.name = "cnn", .architecture = Architecture::kCnn3d, .layers = 2};
  model.cnn_layers = {{.in_channels = 1, .out_channels = 16, .kernel = {3, 3, 3}, .extent = {8, 8, 8}},
                      {.kind = Cnn3dKind::kDense, .in_channels = 16, .out_channels = 10, .extent = {8, 8, 8}}};
  EXPECT_DOUBLE_EQ(ModelFlops(model, 1, 5), 5 * 3 * (2.0 * 512 * 16 * 27 + 2.0 * 16 * 512 * 10));
  EXPECT_EQ(ParameterCount(model), 16 * 27 + 16 + 16 * 512 * 10 + 10);
}

// An account of operators is the same count: its FLOPs three times, forward and backward, its parameters once.
TEST(ModelFlops, OfOperatorsAddUpToTheModels) {
  for (const char* name : {"gpt2", "llama3-8b", "mixtral-8x7b", "deepseek-v3"}) {
    const ModelSpec model = FindModelPreset(name).value();
    const OperatorProfile profile = OperatorsOf({.name = name, .model = model, .global_batch = 4, .sequence = 1024});
    EXPECT_NEAR(3 * profile.ForwardFlops().count() / ModelFlops(model, 1024, 4), 1, 1e-9) << name;
    EXPECT_EQ(profile.Parameters(), ParameterCount(model)) << name;
  }
}

TEST(MeasuredConstants, WinAndAreHeldToTheRangeCompiledIn) {
  const Calibration compiled;
  const MeasuredConstant halved{.name = "gpu.cpu.gemm16", .value = 0.375};
  EXPECT_EQ(compiled.With({&halved, 1}).Get("gpu.cpu", "gemm16"), 0.375);
  EXPECT_EQ(compiled.WhyNot(halved), std::nullopt);
  EXPECT_EQ(compiled.WhyNot({.name = "gpu.l40s.gemm16", .value = 0.6}), std::nullopt) << "of a family, in the range of all";
  EXPECT_NE(compiled.WhyNot({.name = "gpu.abacus.gemm16", .value = 0.6}), std::nullopt);
  EXPECT_NE(compiled.WhyNot({.name = "gpu.cpu.gemm16", .value = 9}), std::nullopt);
  EXPECT_NE(compiled.WhyNot({.name = "gpu.cpu.gemm16", .value = std::numeric_limits<double>::quiet_NaN()}), std::nullopt);
}

}  // namespace
}  // namespace weft::planner::parallelism

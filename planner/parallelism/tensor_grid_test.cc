#include "planner/parallelism/tensor_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace weft::planner::inline parallelism {
namespace {

/// Elements that one rank receives in both directions of a GPT block of width h: QKV, projection, two of the MLP. Sums: in 7h, out
/// 9h, in · out 12h².
double BlockElements(TensorMode mode, int64_t ranks, int64_t depth, int64_t tokens, int64_t h) {
  JobSpec job;
  job.model = {.name = "block", .layers = 1, .hidden = h, .heads = h / 128, .kv_heads = h / 128, .head_dim = 128, .ffn_hidden = 4 * h,
               .vocab = 1024, .max_positions = tokens, .attention_bias = false, .mlp_bias = false};
  job.sequence = tokens;
  std::vector<Operation> communication;
  ComputeLayerTime(job, CalibratedHardware(), SoftwareStack(), {.tp = ranks, .tensor_mode = mode, .tensor_depth = depth}, false, &communication);
  double bytes = 0;
  for (const Operation& o : communication) {
    // A rank that broadcasts receives nothing: all but one of a group's in the mean.
    const double receivers = o.kind == OperationKind::kBroadcast ? 1 - 1.0 / static_cast<double>(o.group.size) : 1;
    if (!o.what.starts_with("norm")) bytes += receivers * BytesSent(o);
  }
  return bytes / 2;
}

TEST(GridSide, IsTheRootOfTheRankCount) {
  EXPECT_EQ(GridSide(TensorMode::k2D, 16, 1), 4);
  EXPECT_EQ(GridSide(TensorMode::k2D, 8, 1), std::nullopt);
  EXPECT_EQ(GridSide(TensorMode::k25D, 32, 2), 4);
  EXPECT_EQ(GridSide(TensorMode::k25D, 32, 3), std::nullopt);
  EXPECT_EQ(GridSide(TensorMode::k3D, 64, 1), 4);
  EXPECT_EQ(GridSide(TensorMode::k3D, 16, 1), std::nullopt);
}

// 3 (q-1)/q² (7Th + 12h²), q = 8, T = 2048, h = 12288.
TEST(GridElements, TwoDimensionsMoveInputsAndWeights) {
  const double T = 2048, h = 12288;
  EXPECT_NEAR(BlockElements(TensorMode::k2D, 64, 1, 2048, 12288), 3.0 * 7 / 64 * (7 * T * h + 12 * h * h), 1);
}

// 3 (q-1)/q² (7Th/z + 12h²) + 2 (z-1)/z · 12h²/q², q = z = 4.
TEST(GridElements, DepthDividesInputsAndSumsWeightGradients) {
  const double T = 8192, h = 12288;
  EXPECT_NEAR(BlockElements(TensorMode::k25D, 64, 4, 8192, 12288),
              3.0 * 3 / 16 * (7 * T * h / 4 + 12 * h * h) + 2.0 * 3 / 4 * 12 * h * h / 16, 1);
}

// 2 (q-1)/q³ (7Th + 12h² + 9Th), q = 4: backward the outputs' gradients are gathered, the others scattered.
TEST(GridElements, ThreeDimensionsGatherInputsAndWeightsAndScatterOutputs) {
  const double T = 32768, h = 12288;
  EXPECT_NEAR(BlockElements(TensorMode::k3D, 64, 1, 32768, 12288), 2.0 * 3 / 64 * (16 * T * h + 12 * h * h), 1);
}

// A norm's two vectors of h are gathered by the q = 8 ranks of a column and their gradients scattered, 2 bytes each; two sums of
// T/q tokens are made in both passes, 4 bytes each. A root mean square takes half of it.
TEST(GridElements, OfNormsAreTheirVectorsAndSumsOfEachToken) {
  for (const bool rms : {false, true}) {
    const double T = 2048, h = 12288, q = 8, each = rms ? 1 : 2;
    JobSpec job;
    job.model = {.name = "block", .layers = 1, .hidden = 12288, .heads = 96, .kv_heads = 96, .head_dim = 128,
                 .ffn_hidden = 4 * 12288, .vocab = 1024, .max_positions = 2048, .rms_norm = rms};
    job.sequence = 2048;
    std::vector<Operation> list;
    AddGridNorm(&list, job, CalibratedHardware(), {.tp = 64, .tensor_mode = TensorMode::k2D});
    double vectors = 0, sums = 0;
    for (const Operation& o : list) (o.what == "norms" ? sums : vectors) += BytesSent(o);
    EXPECT_NEAR(vectors, 2 * (q - 1) / q * 2 * each * h / q, 1);
    EXPECT_NEAR(sums, 2 * 2 * (q - 1) / q * 4 * each * T / q, 1);
  }
}

// The table of MiB per GPU and layer, 16 bit, h = 12288, 64 ranks.
TEST(GridElements, AreTheTableOfTokensAgainstGrids) {
  const auto mib = [](TensorMode mode, int64_t depth, int64_t kibi_tokens) {
    return 2 * BlockElements(mode, 64, depth, kibi_tokens * 1024, 12288) / 0x1p20;
  };
  const struct {
    int64_t tokens;
    double two, two_and_half, three;
  } rows[] = {{2, 1244, 2315, 396}, {8, 1575, 2457, 612}, {32, 2898, 3024, 1476}, {128, 8190, 5292, 4932}};
  for (const auto& row : rows) {
    EXPECT_NEAR(mib(TensorMode::k2D, 1, row.tokens), row.two, 1);
    EXPECT_NEAR(mib(TensorMode::k25D, 4, row.tokens), row.two_and_half, 1);
    EXPECT_NEAR(mib(TensorMode::k3D, 1, row.tokens), row.three, 1);
  }
}

// 1D: (t-1)/t · Th per scatter and gather, two sums per pass; 378 MiB at T = 2 Ki, t = 64.
TEST(GridElements, OneDimensionMovesActivationsOnly) {
  EXPECT_NEAR(BlockElements(TensorMode::k1D, 64, 1, 2048, 12288), 8 * 63.0 / 64 * 2048 * 12288, 1);
  EXPECT_NEAR(2 * BlockElements(TensorMode::k1D, 64, 1, 2048, 12288) / 0x1p20, 378, 1);
}

}  // namespace
}  // namespace weft::planner::parallelism

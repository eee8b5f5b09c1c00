#include "planner/parallelism/tensor_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace weft::planner {
namespace {

/// The four products of a GPT block of width h: QKV, projection, two of the MLP. Sums: in 7h, out 9h, in · out 12h².
double BlockElements(TensorMode mode, int64_t ranks, int64_t depth, double tokens, double h) {
  const std::array products = {GridProduct{tokens, h, 3 * h}, GridProduct{tokens, h, h}, GridProduct{tokens, h, 4 * h},
                               GridProduct{tokens, 4 * h, h}};
  double sum = 0;
  for (const GridProduct& p : products) sum += GridElements(mode, ranks, depth, p);
  return sum;
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
  EXPECT_NEAR(BlockElements(TensorMode::k2D, 64, 1, T, h), 3.0 * 7 / 64 * (7 * T * h + 12 * h * h), 1);
}

// 3 (q-1)/q² (7Th/z + 12h²) + 2 (z-1)/z · 12h²/q², q = z = 4.
TEST(GridElements, DepthDividesInputsAndSumsWeightGradients) {
  const double T = 8192, h = 12288;
  EXPECT_NEAR(BlockElements(TensorMode::k25D, 64, 4, T, h),
              3.0 * 3 / 16 * (7 * T * h / 4 + 12 * h * h) + 2.0 * 3 / 4 * 12 * h * h / 16, 1);
}

// 2 (q-1)/q³ (7Th + 12h² + 9Th), q = 4.
TEST(GridElements, ThreeDimensionsGatherInputsAndWeightsAndScatterOutputs) {
  const double T = 32768, h = 12288;
  EXPECT_NEAR(BlockElements(TensorMode::k3D, 64, 1, T, h), 2.0 * 3 / 64 * (16 * T * h + 12 * h * h), 1);
}

// The table of MiB per GPU and layer, 16 bit, h = 12288, 64 ranks.
TEST(GridElements, AreTheTableOfTokensAgainstGrids) {
  const auto mib = [](TensorMode mode, int64_t depth, double kibi_tokens) {
    return 2 * BlockElements(mode, 64, depth, kibi_tokens * 1024, 12288) / 0x1p20;
  };
  const struct {
    double tokens, two, two_and_half, three;
  } rows[] = {{2, 1244, 2315, 396}, {8, 1575, 2457, 612}, {32, 2898, 3024, 1476}, {128, 8190, 5292, 4932}};
  for (const auto& row : rows) {
    EXPECT_NEAR(mib(TensorMode::k2D, 1, row.tokens), row.two, 1);
    EXPECT_NEAR(mib(TensorMode::k25D, 4, row.tokens), row.two_and_half, 1);
    EXPECT_NEAR(mib(TensorMode::k3D, 1, row.tokens), row.three, 1);
  }
}

// 1D: forward (t-1)/t · 2Th per pair, two pairs per block; 378 MiB at T = 2 Ki, t = 64.
TEST(GridElements, OneDimensionMovesActivationsOnly) {
  const double T = 2048, h = 12288;
  const double pair = GridElements(TensorMode::k1D, 64, 1, {T, h, h});
  EXPECT_NEAR(pair, 2.0 * 63 / 64 * T * h, 1);
  EXPECT_NEAR(2 * 2 * 2 * pair / 0x1p20, 378, 1) << "an all-reduce is a scatter and a gather, two pairs, 16 bit";
}

}  // namespace
}  // namespace weft::planner

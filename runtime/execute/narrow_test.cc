#include "runtime/execute/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weft::runtime {
namespace {

using planner::WireType;

std::vector<double> There(WireType wire, const std::vector<double>& values) {
  std::vector<std::byte> bytes(static_cast<size_t>(planner::NarrowBytes(wire, static_cast<int64_t>(values.size()))));
  std::vector<double> back(values.size());
  Narrow<double>(wire, values, bytes.data());
  Widen<double>(wire, bytes.data(), back);
  return back;
}

// Eight bits of mantissa with the leading one: neighbours of 1 are 2^-7 apart, and half-way goes to the even one.
TEST(Narrow, RoundsToTheNearestBfloat16) {
  const std::vector<double> values = {0, -0.0, 1, 1 + 1 / 256.0, 1 + 3 / 256.0, -(1 + 1 / 200.0), 3.0e38, 1e-40};
  const std::vector<double> back = There(WireType::kBfloat16, values);
  EXPECT_EQ(back[0], 0);
  EXPECT_TRUE(std::signbit(back[1]));
  EXPECT_EQ(back[2], 1);
  EXPECT_EQ(back[3], 1);
  EXPECT_EQ(back[4], 1 + 4 / 256.0);
  EXPECT_EQ(back[5], -(1 + 2 / 256.0));
  EXPECT_NEAR(back[6] / values[6], 1, 1 / 256.0);
  EXPECT_NEAR(back[7], 1e-40, 1e-40);
  const std::vector<double> odd = There(WireType::kBfloat16, {std::numeric_limits<double>::infinity(), std::nan("")});
  EXPECT_TRUE(std::isinf(odd[0]) && std::isnan(odd[1]));
}

// What is too small for a scale becomes zero, and no "not a number", which error feedback would keep.
TEST(Narrow, ABlockOfNearlyNothingIsZero) {
  for (const double least : {1e-44, 1e-40}) {
    for (const double value : There(WireType::kFloat8, {least, 0, -least})) EXPECT_NEAR(value, 0, 2 * least);
  }
}

// Values that e4m3 has come back as they were: with 448 in the block the scale is 1.
TEST(Narrow, KeepsWhatFloat8Has) {
  std::vector<double> values = {448, -448, 1, 1.125, -0.875, 0x1p-6, 0x1p-9, 0x1.cp-7, 0, 240};
  EXPECT_EQ(There(WireType::kFloat8, values), values);
  values = {448, 17, 19, 0x1.8p-9, 0x1p-11};  // half-way to the even one: 16, 20, 2^-8, 0
  EXPECT_EQ(There(WireType::kFloat8, values), (std::vector<double>{448, 16, 20, 0x1p-8, 0}));
  EXPECT_TRUE(std::isnan(There(WireType::kFloat8, {1, std::numeric_limits<double>::infinity()})[1]));
}

// Three bits behind the leading one, or, below 2^-6 of the scale, 2^-10 of it: in every block of 128 for itself.
TEST(Narrow, IsNearInEveryBlock) {
  std::mt19937 random(3);
  std::normal_distribution<double> draw;
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = draw(random) * std::pow(10, static_cast<double>(i / 128) - 4);
  const std::vector<double> back = There(WireType::kFloat8, values);
  for (size_t begin = 0; begin < values.size(); begin += 128) {
    double largest = 0;
    for (size_t i = begin; i < std::min(values.size(), begin + 128); ++i) largest = std::max(largest, std::fabs(values[i]));
    for (size_t i = begin; i < std::min(values.size(), begin + 128); ++i) {
      EXPECT_NEAR(back[i], values[i], std::max(std::fabs(values[i]) / 16, largest / 448 * 0x1p-10) * 1.0001) << i;
    }
  }
}

TEST(Narrow, BytesAreThoseOfTheProgram) {
  EXPECT_EQ(planner::NarrowBytes(WireType::kBfloat16, 129), 258);
  EXPECT_EQ(planner::NarrowBytes(WireType::kFloat8, 128), 132);
  EXPECT_EQ(planner::NarrowBytes(WireType::kFloat8, 129), 137);
}

}  // namespace
}  // namespace weft::runtime

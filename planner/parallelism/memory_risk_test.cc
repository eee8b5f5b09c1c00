#include "planner/parallelism/memory_risk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/fabric/cluster_spec.h"

namespace weft::planner::inline parallelism {
namespace {

DeviceSpec Device(const char* preset) { return FindClusterPreset(preset, 1)->device; }

TEST(MemoryErrors, AscendAroundOne) {
  const auto errors = MemoryErrors();
  ASSERT_GE(errors.size(), 20U) << "for a quantile of 95 % that is no extreme";
  EXPECT_TRUE(std::is_sorted(errors.begin(), errors.end()));
  EXPECT_GT(errors.front(), 0);
  EXPECT_LT(errors.front(), 1);
  EXPECT_GT(errors.back(), 1);
}

// Of n errors at most risk · n lie above the factor, and one rank lower more would.
TEST(MemoryFactor, IsTheLeastThatKeepsTheRisk) {
  const auto errors = MemoryErrors();
  const auto n = static_cast<double>(errors.size());
  for (const double risk : {0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.9, 0.999}) {
    const double factor = MemoryFactor(risk);
    const auto above = [&](double value) {
      return static_cast<double>(std::count_if(errors.begin(), errors.end(), [&](double e) { return e > value; }));
    };
    EXPECT_LE(above(factor), risk * n + 1e-9) << risk;
    const auto lower = std::lower_bound(errors.begin(), errors.end(), factor);
    if (lower != errors.begin()) {
      EXPECT_GT(above(*(lower - 1)), risk * n - 1e-9) << risk;
    }
  }
  EXPECT_EQ(MemoryFactor(1e-9), errors.back()) << "no risk: as far off as any run was";
  EXPECT_EQ(MemoryFactor(1), errors.front());
  EXPECT_GE(MemoryFactor(0.01), MemoryFactor(0.05));
}

TEST(MemoryAllowance, FallsWithTheRiskAndIsAllOfAProcessor) {
  const DeviceSpec h100 = Device("dgx-h100");
  const auto memory = static_cast<double>(h100.memory.count());
  EXPECT_DOUBLE_EQ(MemoryAllowance(h100, kDefaultRisk), memory / MemoryFactor(kDefaultRisk));
  EXPECT_LE(MemoryAllowance(h100, 0.01), MemoryAllowance(h100, 0.05));
  EXPECT_EQ(MemoryAllowance(h100, std::nullopt), memory) << "what is predicted has to fit";
  DeviceSpec cpu = h100;
  cpu.reserved = Bytes(0);
  EXPECT_EQ(MemoryAllowance(cpu, 0.001), memory) << "a host's processor has no context, and its memory is not so tight";
}

// The share of the errors that are at most the device's memory over the prediction.
TEST(FitProbability, IsTheShareOfRunsThatWouldHaveFitted) {
  const auto errors = MemoryErrors();
  DeviceSpec device = Device("dgx-h100");
  device.memory = Bytes(1'000'000);
  EXPECT_EQ(FitProbability(device, Bytes(1)), 1);
  EXPECT_EQ(FitProbability(device, Bytes(0)), 1);
  EXPECT_EQ(FitProbability(device, Bytes(1'000'000'000)), 0);
  const auto at_most_one = static_cast<double>(std::count_if(errors.begin(), errors.end(), [](double e) { return e <= 1; }));
  EXPECT_DOUBLE_EQ(FitProbability(device, device.memory), at_most_one / static_cast<double>(errors.size()));
  // What the risk allows fits with no less than the rest.
  for (const double risk : {0.01, 0.05, 0.2, 0.5}) {
    const Bytes allowed(static_cast<int64_t>(MemoryAllowance(device, risk)));
    EXPECT_GE(FitProbability(device, allowed), 1 - risk - 1e-9) << risk;
  }
  double last = 1;
  for (int64_t predicted = 500'000; predicted < 2'000'000; predicted += 10'000) {
    const double fits = FitProbability(device, Bytes(predicted));
    EXPECT_LE(fits, last);
    last = fits;
  }
}

TEST(FitProbability, OfAProcessorIsYesOrNo) {
  DeviceSpec cpu = Device("dgx-h100");
  cpu.reserved = Bytes(0);
  EXPECT_EQ(FitProbability(cpu, cpu.memory), 1);
  EXPECT_EQ(FitProbability(cpu, cpu.memory + Bytes(1)), 0);
}

}  // namespace
}  // namespace weft::planner::parallelism

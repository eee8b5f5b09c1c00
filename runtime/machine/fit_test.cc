#include "runtime/machine/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/parallelism/attention_time.h"
#include "planner/parallelism/calibrated_hardware.h"

namespace weft::runtime {
namespace {

using ::testing::HasSubstr;

/// Of a core with these constants by the cost model, which is what the fit has to find again.
MachineTimes TimesOf(const std::map<std::string, double>& constants) {
  planner::NodeGroup node{.name = "a core", .nodes = 1, .gpus_per_node = 1, .device = *planner::FindDevice("cpu")};
  node.intra_node_rate = node.nic_rate = BitsPerSecond(8e9);
  planner::ClusterSpec cluster = planner::MakeCluster("a core", {node}, 1);
  for (const auto& [name, value] : constants) cluster.measured.push_back({.name = name, .value = value});
  const planner::CalibratedHardware h =
      planner::MakeCalibratedHardware(cluster, planner::Precision::kFp32, planner::StackOf(planner::Framework::kWeftTrain),
                                      planner::Calibration())
          .value();
  MachineTimes times;
  for (const double m : {64.0, 256.0, 1024.0}) {
    for (const double k : {32.0, 128.0, 512.0, 1024.0}) {
      times.products.push_back({.m = m, .n = 256, .k = k});
      times.products.back().time = planner::GemmTime(h, h.gemm_rate, {.m = m, .n = 256, .k = k}, h.element, h.element);
    }
  }
  for (const double sequence : {64.0, 256.0, 1024.0}) {
    times.attention.push_back({.batch = 2, .heads = 4, .sequence = sequence, .width = 64});
    times.attention.back().time = planner::FusedForwardTime(
        h, {.batch = 2, .heads = 4, .tokens = sequence, .keys = sequence, .query_width = 64, .value_width = 64,
            .key_values = 2 * 4 * 64, .share = 0.5});
  }
  const double rate = constants.at("gpu.cpu.memory") * planner::FindDevice("cpu")->memory_rate.bytes_per_second();
  // Two that were disturbed: the median is not.
  for (const double slower : {1.0, 1.0, 1.0, 3.0, 9.0}) times.streams.push_back({"copy", 1e6, Seconds(1e6 / rate * slower)});
  times.least = Seconds(constants.at("gpu.cpu.launch"));
  return times;
}

TEST(FitConstants, FindsTheConstantsByWhichTimesWereMade) {
  const std::map<std::string, double> made = {{"host.kernel", 2e-6},        {"gpu.cpu.launch", 2e-6}, {"gpu.cpu.memory", 0.6},
                                              {"gpu.cpu.gemm16", 0.5},      {"gpu.cpu.ramp_depth", 64}, {"gpu.cpu.flash", 0.3},
                                              {"gpu.cpu.flash_ramp", 128}};
  const FittedConstants fitted = FitConstants(TimesOf(made));
  ASSERT_EQ(fitted.constants.size(), made.size());
  for (const planner::CalibrationConstant& c : fitted.constants) {
    ASSERT_TRUE(made.contains(c.name)) << c.name;
    // Shares are searched in steps of 4 %, ramps in powers of two.
    EXPECT_NEAR(c.value, made.at(c.name), 0.03 * made.at(c.name)) << c.name;
    EXPECT_TRUE(c.fitted);
  }
  EXPECT_THAT(fitted.lines.at(0), HasSubstr("12 times"));
  EXPECT_THAT(fitted.lines.at(1), HasSubstr("3 times"));
}

TEST(FitConstants, OneTimeOfEachKindIsEnough) {
  const Seconds time(1e-4);
  const FittedConstants fitted =
      FitConstants({.products = {{.m = 64, .n = 64, .k = 64, .time = time}},
                    .attention = {{.batch = 1, .heads = 1, .sequence = 64, .width = 64, .time = time}},
                    .streams = {{"copy", 1e6, time}},
                    .least = Seconds(1e-6)});
  EXPECT_EQ(fitted.constants.size(), 7u);
}

}  // namespace
}  // namespace weft::runtime

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/fabric/device_spec.h"
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

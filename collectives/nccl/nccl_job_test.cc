#include "collectives/nccl/nccl_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "collectives/nccl/nccl_data.h"

namespace weft::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NcclStep, IsAPauseOrACallOfAGroup) {
  const auto pause = ParseNcclStep("compute=150ms");
  ASSERT_TRUE(pause);
  EXPECT_EQ(pause->call, NcclCall::kCompute);
  EXPECT_DOUBLE_EQ(pause->compute.count(), 0.15);
  const auto call = ParseNcclStep("dp.allreduce=2MiB");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->call, NcclCall::kAllReduce);
  EXPECT_EQ(call->group, NcclGroup::kData);
  EXPECT_EQ(call->bytes, Bytes(2 << 20));
}

TEST(NcclStep, WhatIsWrongIsNamed) {
  EXPECT_THAT(ParseNcclStep("ep.allreduce=1MiB").error().message(), HasSubstr("no group \"ep\""));
  EXPECT_THAT(ParseNcclStep("dp.sum=1MiB").error().message(), HasSubstr("no call \"sum\""));
  EXPECT_THAT(ParseNcclStep("dp=1MiB").error().message(), HasSubstr("no call \"\""));
  EXPECT_THAT(ParseNcclStep("dp.allreduce=1").error().message(), HasSubstr("dp.allreduce=1"));
  EXPECT_THAT(ParseNcclStep("dp.allreduce").error().message(), HasSubstr("GROUP.CALL=BYTES"));
  EXPECT_THAT(ParseNcclStep("compute=fast").error().message(), HasSubstr("compute=fast"));
}

TEST(NcclDelay, HasARankACallAndATime) {
  const auto delay = ParseNcclDelay("2:50:1s");
  ASSERT_TRUE(delay);
  EXPECT_EQ(delay->rank, 2);
  EXPECT_EQ(delay->call, 50);
  EXPECT_DOUBLE_EQ(delay->time.count(), 1);
  for (const char* text : {"", "2", "2:50", "x:50:1s", "2:0:1s", "-1:5:1s", "2:50:1"}) {
    EXPECT_FALSE(ParseNcclDelay(text)) << text;
  }
}

TEST(NcclTrafficClass, IsATosByteOfAGroup) {
  const auto of_group = ParseNcclTrafficClass("dp=104");
  ASSERT_TRUE(of_group);
  EXPECT_EQ(of_group->first, NcclGroup::kData);
  EXPECT_EQ(of_group->second, 104);
  for (const char* text : {"", "dp", "dp=", "dp=256", "dp=-1", "dp=1x", "ep=1", "104"}) EXPECT_FALSE(ParseNcclTrafficClass(text)) << text;
}

TEST(NcclGroups, LieAsInMegatron) {
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ(RanksOfGroups(NcclGroup::kTensor, 8, 2, 2), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(RanksOfGroups(NcclGroup::kData, 8, 2, 2), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(RanksOfGroups(NcclGroup::kPipeline, 8, 2, 2), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(RanksOfGroups(NcclGroup::kWorld, 4, 2, 2), (Groups{{0, 1, 2, 3}}));
}

TEST(NcclData, SmallNumbersInEveryType) {
  EXPECT_EQ(Encode(NcclType::kFloat16, 1), 0x3c00u);
  EXPECT_EQ(Encode(NcclType::kFloat16, 5), 0x4500u);
  EXPECT_EQ(Encode(NcclType::kFloat16, 0.375), 0x3600u);
  EXPECT_EQ(Encode(NcclType::kBfloat16, 5), 0x40a0u);
  EXPECT_EQ(Encode(NcclType::kFloat32, -2), 0xc0000000u);
  EXPECT_EQ(Encode(NcclType::kFloat64, 1), std::bit_cast<uint64_t>(1.0));
  EXPECT_EQ(Encode(NcclType::kInt8, -1) & 0xff, 0xffu);
}

TEST(NcclData, ReductionsOfAFewRanks) {
  const std::vector<int> values = {8, 1, 3};
  EXPECT_EQ(Reduced(NcclOp::kSum, NcclType::kFloat32, values), 12);
  EXPECT_EQ(Reduced(NcclOp::kProd, NcclType::kFloat32, values), 24);
  EXPECT_EQ(Reduced(NcclOp::kMax, NcclType::kFloat32, values), 8);
  EXPECT_EQ(Reduced(NcclOp::kMin, NcclType::kFloat32, values), 1);
  EXPECT_EQ(Reduced(NcclOp::kAvg, NcclType::kFloat32, values), 4);
  EXPECT_EQ(Reduced(NcclOp::kAvg, NcclType::kInt32, std::vector<int>{8, 1}), 4);
  EXPECT_EQ(Reduced(NcclOp::kAvg, NcclType::kFloat32, std::vector<int>{8, 1}), 4.5);
}

TEST(NcclData, ContributionsDifferByRankPositionAndCall) {
  int differ = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const int value = Contribution(NcclOp::kSum, 0, i, 1);
    ASSERT_GE(value, 1);
    ASSERT_LE(value, 8);
    ASSERT_LE(Contribution(NcclOp::kProd, 0, i, 1), 2);
    differ += value != Contribution(NcclOp::kSum, 1, i, 1) && value != Contribution(NcclOp::kSum, 0, i, 2);
  }
  EXPECT_GT(differ, 500);
}

TEST(NcclLibrary, SaysWhatItTried) {
  const auto library = NcclLibrary::Open("", "/no/such/libcudart.so");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), Code::kNotFound);
  EXPECT_THAT(library.error().message(), HasSubstr("/no/such/libcudart.so"));
}

}  // namespace
}  // namespace weft::collectives

#include "collectives/nccl/nccl_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "collectives/nccl/nccl_data.h"
#include "collectives/nccl/nccl_report.h"

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
  EXPECT_FALSE(call->timed);
  const auto timed = ParseNcclStep("world.allgather=8Bx50");
  ASSERT_TRUE(timed);
  EXPECT_TRUE(timed->timed);
  EXPECT_EQ(timed->calls, 50);
  EXPECT_EQ(timed->bytes, Bytes(8));
}

TEST(NcclStep, WhatIsWrongIsNamed) {
  EXPECT_THAT(ParseNcclStep("ep.allreduce=1MiB").error().message(), HasSubstr("no group \"ep\""));
  EXPECT_THAT(ParseNcclStep("dp.sum=1MiB").error().message(), HasSubstr("no call \"sum\""));
  EXPECT_THAT(ParseNcclStep("dp=1MiB").error().message(), HasSubstr("no call \"\""));
  EXPECT_THAT(ParseNcclStep("dp.allreduce=1").error().message(), HasSubstr("dp.allreduce=1"));
  EXPECT_THAT(ParseNcclStep("dp.allreduce").error().message(), HasSubstr("GROUP.CALL=BYTES"));
  EXPECT_THAT(ParseNcclStep("dp.allreduce=8Bx0").error().message(), HasSubstr("no number of calls after x"));
  EXPECT_THAT(ParseNcclStep("dp.allreduce=8Bx").error().message(), HasSubstr("no number of calls after x"));
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

NcclJobOptions TwoSums() {
  NcclJobOptions options;
  options.world = 4;
  options.steps = {*ParseNcclStep("compute=10ms"), *ParseNcclStep("world.allreduce=1KiB"), *ParseNcclStep("world.allgather=64B")};
  options.iterations = 3;
  return options;
}

TEST(NcclJobOptions, EachWrongOneIsNamed) {
  ASSERT_TRUE(CheckNcclJobOptions(TwoSums()));
  const auto message = [](auto change) {
    NcclJobOptions options = TwoSums();
    change(options);
    const Status status = CheckNcclJobOptions(options);
    return status ? std::string("none") : status.error().message();
  };
  EXPECT_THAT(message([](auto& o) { o.steps.clear(); }), HasSubstr("no --step"));
  EXPECT_THAT(message([](auto& o) { o.iterations = {}; }), HasSubstr("--iterations and --duration"));
  EXPECT_THAT(message([](auto& o) { o.iterations = 0; }), HasSubstr("--iterations 0"));
  EXPECT_THAT(message([](auto& o) { o.min_iterations = 0; }), HasSubstr("--min-iterations 0"));
  EXPECT_THAT(message([](auto& o) { o.apart_every = 1; }), HasSubstr("--apart-every 1"));
  EXPECT_THAT(message([](auto& o) { o.tensor = 3; }), HasSubstr("--tp 3"));
  EXPECT_THAT(message([](auto& o) { o.tensor = o.pipeline = 65536; }), HasSubstr("--tp 65536"));
  EXPECT_THAT(message([](auto& o) { o.delay = NcclDelay{.rank = 4, .call = 1, .time = Seconds(1)}; }), HasSubstr("--delay: rank 4"));
  EXPECT_THAT(message([](auto& o) { o.traffic_classes = {{NcclGroup::kTensor, 104}}; }), HasSubstr("--traffic-class tp=104"));
  EXPECT_THAT(message([](auto& o) {
                o.world = 3;
                o.op = NcclOp::kAvg;
              }),
              HasSubstr("over the 3 ranks of world"));
}

TEST(NcclReport, HasTheKeysOfWeftTrain) {
  EXPECT_EQ(NcclJobLine(TwoSums()), R"({"job":{"model":"weft-nccl-job","ranks":4,"bucket_bytes":[1024,64]}})");
  NcclIteration iteration{.number = 7, .time = Seconds(0.5), .end = Seconds(3), .apart = {}, .calls = {}};
  EXPECT_EQ(NcclIterationLine(iteration), R"({"step":7,"iteration_s":0.500000000,"time_s":3.000000000})");
  iteration.apart = {.compute = Seconds(0.25), .ready = {Seconds(0.25), Seconds(0.25)}};
  EXPECT_THAT(NcclIterationLine(iteration),
              HasSubstr(R"("apart":{"forward_s":0.0,"backward_s":0.250000000,"ready_s":[0.250000000,0.250000000]})"));
  iteration.apart.reset();
  iteration.calls = {0.5};
  EXPECT_THAT(NcclIterationLine(iteration), HasSubstr(R"("time_s":3.000000000,"calls_s":[0.500000000]})"));
  EXPECT_EQ(NcclSummaryLine(TwoSums(), "2.30.7", 4, {3, 1, 2}, 12),
            R"({"summary":{"steps":4,"ranks":4,"nccl":"2.30.7","elements_checked":12,"iteration_s_median":2.000000000}})");
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

TEST(NcclData, ExactIsWhatEveryOrderGives) {
  EXPECT_TRUE(IsExact(NcclOp::kSum, NcclType::kBfloat16, 32));
  EXPECT_FALSE(IsExact(NcclOp::kSum, NcclType::kBfloat16, 33));
  EXPECT_TRUE(IsExact(NcclOp::kSum, NcclType::kInt8, 1000)) << "modulo 256";
  EXPECT_TRUE(IsExact(NcclOp::kAvg, NcclType::kInt8, 15));
  EXPECT_FALSE(IsExact(NcclOp::kAvg, NcclType::kInt8, 16));
  EXPECT_TRUE(IsExact(NcclOp::kAvg, NcclType::kFloat32, 8));
  EXPECT_FALSE(IsExact(NcclOp::kAvg, NcclType::kFloat32, 3));
  EXPECT_TRUE(IsExact(NcclOp::kProd, NcclType::kFloat16, 15));
  EXPECT_FALSE(IsExact(NcclOp::kProd, NcclType::kFloat16, 16));
  EXPECT_TRUE(IsExact(NcclOp::kMax, NcclType::kBfloat16, 16384));
}

TEST(NcclData, FilledByCopiesAsElementByElement) {
  const size_t share = kContributionPeriod * 2 + 7, count = share * 2;
  const auto value = [&](size_t i) { return Contribution(NcclOp::kSum, static_cast<int>(i / share), 5 + i % share, 1); };
  const auto bytes = FillWith(NcclType::kInt8, count, value, share);
  ASSERT_EQ(bytes.size(), count);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(bytes[i], value(i)) << i;
  EXPECT_EQ(FillWith(NcclType::kInt8, share, value), std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(share)));
  EXPECT_TRUE(FillWith(NcclType::kFloat32, 0, value).empty());
}

TEST(NcclLibrary, SaysWhatItTried) {
  const auto library = NcclLibrary::Open("", "/no/such/libcudart.so");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code(), Code::kNotFound);
  EXPECT_THAT(library.error().message(), HasSubstr("/no/such/libcudart.so"));
}

}  // namespace
}  // namespace weft::collectives

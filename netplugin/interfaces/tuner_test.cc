#include "netplugin/interfaces/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

namespace weft::net {
namespace {

using ::testing::HasSubstr;

constexpr int kTree = 0, kRing = 1, kNvls = 4, kPat = 6, kLl = 0, kLl128 = 1, kSimple = 2;

/// A cost table as NCCL fills it: entry (a, p) costs 100 + 10 a + p, but for those that it does not offer.
struct Costs {
  std::array<float, 21> values;
  Costs() {
    for (int i = 0; i < 21; ++i) values[i] = static_cast<float>(100 + 10 * (i / 3) + i % 3);
    for (int p = 0; p < 3; ++p) at(kNvls, p) = nccl::kCostIgnore;
    at(kRing, kLl128) = nccl::kCostIgnore;
  }
  float& at(int algorithm, int protocol) { return values[algorithm * 3 + protocol]; }
  CostTable table() { return {values.data(), 7, 3}; }
  /// What NCCL takes: the least entry that is not negative, the first of equals.
  std::pair<int, int> Choice() {
    int best = -1;
    for (int i = 0; i < 21; ++i) {
      if (values[i] >= 0 && (best < 0 || values[i] < values[best])) best = i;
    }
    return {best / 3, best % 3};
  }
  /// How many entries differ from what NCCL filled in.
  int Changed() {
    Costs fresh;
    int changed = 0;
    for (int i = 0; i < 21; ++i) changed += fresh.values[i] != values[i];
    return changed;
  }
};

TunerPlan MakePlan(const char* text) {
  TunerPlan plan;
  size_t at = 0;
  const char* wrong = abi::ParseCollectiveTable(text, std::strlen(text), &plan.table, &at);
  EXPECT_EQ(wrong, nullptr) << wrong << " at " << at;
  return plan;
}

class TunerEnvironment : public ::testing::Test {
 protected:
  TunerEnvironment() { Clear(); }
  ~TunerEnvironment() override { Clear(); }
  static void Clear() {
    for (const char* name : {"WEFT_COLLECTIVES", "WEFT_FABRIC", "NCCL_ALGO", "NCCL_PROTO"}) unsetenv(name);
  }
};

TEST(Tuner, AnEntryThatFitsWinsAndNothingElseChanges) {
  const TunerPlan plan = MakePlan("1;16x2:allreduce:0-65535:tree:ll128:0;16x2:allreduce:65536-:ring:simple:8");
  Tuner tuner(plan, 16, 2, nullptr);
  Costs small, large;
  int channels = 0;
  tuner.Choose(nccl::kAllReduce, 65535, small.table(), &channels);
  EXPECT_EQ(small.Choice(), (std::pair{kTree, kLl128}));
  EXPECT_EQ(small.Changed(), 1);
  EXPECT_EQ(channels, 0) << "0 leaves the number to NCCL";
  tuner.Choose(nccl::kAllReduce, 65536, large.table(), &channels);
  EXPECT_EQ(large.Choice(), (std::pair{kRing, kSimple}));
  EXPECT_EQ(channels, 8);
}

TEST(Tuner, OtherCommunicatorsAndCollectivesAreLeftToNccl) {
  const TunerPlan plan = MakePlan("1;16x2:allreduce:0-:ring:simple:8;#00000000000000ff:allgather:0-:ring:ll:4");
  const struct {
    size_t ranks, nodes;
    int function;
  } cases[] = {{8, 2, nccl::kAllReduce}, {16, 4, nccl::kAllReduce}, {16, 2, nccl::kReduceScatter},
               {16, 2, nccl::kAllGather}, {16, 2, 8 /* AlltoAll is never offered */}};
  for (const auto& c : cases) {
    Tuner tuner(plan, c.ranks, c.nodes, nullptr);
    Costs costs;
    int channels = 0;
    tuner.Choose(c.function, 1 << 20, costs.table(), &channels);
    EXPECT_EQ(costs.Changed(), 0) << c.ranks << " ranks, function " << c.function;
    EXPECT_EQ(channels, 0);
  }
}

// NCCL takes a number of channels as it is for what a switch computes, and cuts it to the communicator's for the rest.
TEST(Tuner, ChannelsOfASwitchsAlgorithmsAreLeftToNccl) {
  Costs costs;
  costs.at(kNvls, kSimple) = 200;
  int channels = 0;
  const TunerPlan plan = MakePlan("1;*:allreduce:0-:nvls:simple:8");
  Tuner(plan, 16, 2, nullptr).Choose(nccl::kAllReduce, 1 << 20, costs.table(), &channels);
  EXPECT_EQ(costs.Choice(), (std::pair{kNvls, kSimple}));
  EXPECT_EQ(channels, 0);
}

TEST(Tuner, WhatNcclDoesNotOfferIsNeverChosen) {
  Costs costs;
  int channels = 0;
  for (const char* text : {"1;*:allreduce:0-:nvls:simple:8", "1;*:allreduce:0-:ring:ll128:8", "1;*:allreduce:0-:nvls:-:8"}) {
    const TunerPlan plan = MakePlan(text);
    Tuner tuner(plan, 16, 2, nullptr);
    tuner.Choose(nccl::kAllReduce, 1 << 20, costs.table(), &channels);
    EXPECT_EQ(costs.Changed(), 0) << text;
    EXPECT_EQ(channels, 0) << "channels of an entry that does not hold are not its word either";
  }
  // NCCL before 2.23 has no PAT: its table ends before it.
  const TunerPlan plan = MakePlan("1;*:allgather:0-:pat:simple:0");
  Tuner tuner(plan, 16, 2, nullptr);
  tuner.Choose(nccl::kAllGather, 1 << 20, {costs.values.data(), kPat, 3}, &channels);
  EXPECT_EQ(costs.Changed(), 0);
}

TEST(Tuner, AnyProtocolIsTheCheapestThatIsOffered) {
  const TunerPlan plan = MakePlan("1;*:allreduce:0-:ring:-:0");
  Tuner tuner(plan, 4, 4, nullptr);
  Costs costs;
  costs.at(kRing, kLl) = 500;  // LL128 is not offered
  tuner.Choose(nccl::kAllReduce, 1 << 20, costs.table(), nullptr);
  EXPECT_EQ(costs.Choice(), (std::pair{kRing, kSimple}));
}

TEST(Tuner, RanksWithTheSameEnvironmentAnswerAlike) {
  const TunerPlan plan = MakePlan("1;*:allreduce:0-4095:tree:ll:1;*:allreduce:4096-:ring:simple:4");
  const auto slots = std::make_unique<abi::CommunicatorSlot[]>(2);
  Tuner first(plan, 8, 8, &slots[0]), second(plan, 8, 8, &slots[1]);
  for (size_t bytes = 1; bytes < (1 << 24); bytes = bytes * 3 + 1) {
    Costs a, b;
    int channels_a = 0, channels_b = 0;
    first.Choose(nccl::kAllReduce, bytes, a.table(), &channels_a);
    second.Choose(nccl::kAllReduce, bytes, b.table(), &channels_b);
    EXPECT_EQ(a.values, b.values);
    EXPECT_EQ(channels_a, channels_b);
  }
  EXPECT_EQ(slots[0].decision_digest.load(), slots[1].decision_digest.load());
  EXPECT_NE(slots[0].decision_digest.load(), 0u);
  EXPECT_EQ(slots[0].decided.load(), 15u);
  Costs costs;
  second.Choose(nccl::kReduce, 8, costs.table(), nullptr);
  EXPECT_EQ(slots[1].left.load(), 1u);
  EXPECT_NE(slots[0].decision_digest.load(), slots[1].decision_digest.load()) << "one asked once more";
}

TEST_F(TunerEnvironment, TheUsersOwnChoiceDecidesAndIsRecorded) {
  setenv("WEFT_COLLECTIVES", "1;*:allreduce:0-:ring:simple:4", 1);
  setenv("NCCL_PROTO", "LL", 1);
  const TunerPlan plan = ReadTunerPlan();
  EXPECT_TRUE(plan.overridden());
  const auto slot = std::make_unique<abi::CommunicatorSlot>();
  Tuner tuner(plan, 2, 2, slot.get());
  Costs costs;
  int channels = 0;
  tuner.Choose(nccl::kAllReduce, 1 << 20, costs.table(), &channels);
  EXPECT_EQ(costs.Changed(), 0);
  EXPECT_EQ(channels, 0);
  EXPECT_EQ(slot->overridden.load(), 2u);
  EXPECT_EQ(slot->left.load(), 1u);
  setenv("NCCL_ALGO", "Ring", 1);
  EXPECT_TRUE(ReadTunerPlan().user_algorithm);
}

TEST_F(TunerEnvironment, ATableWithAMistakeIsRefusedWholeAndNamed) {
  setenv("WEFT_COLLECTIVES", "1;*:allreduce:0-:ring:simple:4;*:allreduce:0-:rings:simple:4", 1);
  const TunerPlan plan = ReadTunerPlan();
  EXPECT_EQ(plan.table.count, 0u);
  EXPECT_EQ(plan.digest, 0u);
  ASSERT_EQ(plan.problems.size(), 1u);
  EXPECT_THAT(plan.problems[0], HasSubstr("WEFT_COLLECTIVES at byte 4"));
  EXPECT_THAT(plan.problems[0], HasSubstr("the whole table is refused"));
}

TEST_F(TunerEnvironment, TablesAreToldApartByTheirDigest) {
  setenv("WEFT_COLLECTIVES", "1;*:allreduce:0-:ring:simple:4", 1);
  const uint64_t one = ReadTunerPlan().digest;
  EXPECT_NE(one, 0u);
  EXPECT_EQ(ReadTunerPlan().digest, one);
  setenv("WEFT_COLLECTIVES", "1;*:allreduce:0-:ring:simple:5", 1);
  EXPECT_NE(ReadTunerPlan().digest, one);
}

TEST_F(TunerEnvironment, AFabricOutOfRangeIsRefused) {
  for (const char* text : {"bandwidth:0", "bandwidth:1.5", "latency_us:-1", "latency_us:nan", "bandwidth=0.5", "",
                           "speed:1", "bandwidth:0.5,", "bandwidth:0.5;latency_us:3", "bandwidth:0.5x"}) {
    setenv("WEFT_FABRIC", text, 1);
    const TunerPlan plan = ReadTunerPlan();
    EXPECT_EQ(plan.fabric.bandwidth, 1) << text;
    EXPECT_EQ(plan.fabric.latency_us, 0) << text;
    EXPECT_EQ(plan.problems.size(), *text ? 1u : 0u) << text;
  }
  setenv("WEFT_FABRIC", "latency_us:12.5,bandwidth:0.25", 1);
  const TunerPlan plan = ReadTunerPlan();
  EXPECT_EQ(plan.fabric.bandwidth, 0.25);
  EXPECT_EQ(plan.fabric.latency_us, 12.5);
  EXPECT_TRUE(plan.problems.empty());
}

TEST_F(TunerEnvironment, AMutatedFabricIsInRangeOrTheDefault) {
  std::mt19937 random(5);
  const std::string alphabet = "0123456789.:,-e bandwidthlatency_us";
  for (int round = 0; round < 5000; ++round) {
    std::string text = "bandwidth:0.5,latency_us:10";
    for (uint32_t i = 0; i <= random() % 3; ++i) text[random() % text.size()] = alphabet[random() % alphabet.size()];
    setenv("WEFT_FABRIC", text.c_str(), 1);
    const TunerPlan plan = ReadTunerPlan();
    EXPECT_TRUE(plan.fabric.bandwidth >= 0.01 && plan.fabric.bandwidth <= 1) << text;
    EXPECT_TRUE(plan.fabric.latency_us >= 0 && plan.fabric.latency_us <= 10000) << text;
    if (!plan.problems.empty()) {
      EXPECT_TRUE(plan.fabric.bandwidth == 1 && plan.fabric.latency_us == 0) << text;
    }
  }
}

TEST(TunerConstants, ASlowerFabricTouchesOnlyWhatCrossesIt) {
  nccl::TunerConstants constants{};
  auto* all = reinterpret_cast<double*>(&constants);
  for (size_t i = 0; i < sizeof constants / sizeof(double); ++i) all[i] = 40;
  constants.hardware_latencies[nccl::kNetLink][kNvls][kLl] = 0;
  AdaptConstants({.bandwidth = 0.5, .latency_us = 10}, &constants);
  EXPECT_EQ(constants.hardware_latencies[nccl::kNetLink][kRing][kSimple], 50);
  EXPECT_EQ(constants.hardware_latencies[nccl::kNetLink][kNvls][kLl], 0) << "it does not use that link";
  EXPECT_EQ(constants.hardware_latencies[0][kRing][kSimple], 40);
  EXPECT_EQ(constants.base_latencies[kRing][kSimple], 40);
  EXPECT_EQ(constants.ll_max_bandwidths[2][0], 40) << "one node";
  EXPECT_EQ(constants.ll_max_bandwidths[2][1], 20);
  EXPECT_EQ(constants.channel_ring_ll128_bandwidths[3][2], 20);
  EXPECT_EQ(constants.channel_tree_bandwidths[0][2], 20);
  const nccl::TunerConstants before = constants;
  AdaptConstants({}, &constants);
  EXPECT_EQ(std::memcmp(&before, &constants, sizeof before), 0) << "the default changes nothing";
}

}  // namespace
}  // namespace weft::net

#include "controller/communicators.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

namespace weft::controller {
namespace {

using planner::CommunicatorKind;
using planner::Operation;
using planner::OperationKind;
using planner::OperationPass;

/// tp 2, dp 2, pp 2: rank = tp + 2 dp + 4 stage. Gradients hide behind the backward pass; sends between stages do not.
planner::OperationList List() {
  planner::OperationList list{.stages = 2, .micro_batches = 4, .ranks_per_stage = 4};
  const Operation tensor{.what = "tensor sums", .kind = OperationKind::kAllReduce, .calls = 2, .communicator = CommunicatorKind::kTensor,
                         .group = {2, 1}, .bytes = 100};
  const Operation data{.what = "gradients", .kind = OperationKind::kAllReduce, .pass = OperationPass::kOnce,
                       .communicator = CommunicatorKind::kData, .group = {2, 2}, .bytes = 1000, .hides_behind = "backward"};
  Operation down{.what = "activations", .kind = OperationKind::kSendReceive, .communicator = CommunicatorKind::kPipeline, .group = {2, 4},
                 .bytes = 10};
  list.classes.push_back({.stages = {0}, .operations = {tensor, data, down}});
  Operation up = down;
  up.pass = OperationPass::kData;
  list.classes.push_back({.stages = {1}, .operations = {tensor, data, up}});
  return list;
}

class CommunicatorsTest : public ::testing::Test {
 protected:
  void Flow(uint64_t comm, int rank, int peer, double bytes = 0) {
    SendFlow& flow = flows_.emplace_back();
    flow.identity.set_comm(comm);
    flow.identity.set_rank(rank);
    flow.identity.set_peer_rank(peer);
    flow.meter.known = bytes > 0;
    flow.meter.bytes_each = bytes;
  }
  std::map<uint64_t, KnownCommunicator> Match(const std::vector<std::string>& hosts) {
    std::vector<const SendFlow*> flows;
    for (const SendFlow& flow : flows_) flows.push_back(&flow);
    return MatchCommunicators(List(), hosts, flows);
  }
  std::deque<SendFlow> flows_;
  const std::vector<std::string> alone_ = {"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"};
};

TEST_F(CommunicatorsTest, AreTheGroupsThatHaveTheirRanks) {
  Flow(1, 0, 1);
  Flow(2, 5, 7);
  Flow(3, 2, 6);
  Flow(4, 0, 7);   // no group has both
  Flow(0, 0, 1);   // nobody knows whose
  Flow(5, 900, -1);
  const auto known = Match(alone_);
  ASSERT_EQ(known.size(), 3U);
  EXPECT_EQ(known.at(1).kind, CommunicatorKind::kTensor);
  EXPECT_EQ(known.at(2).kind, CommunicatorKind::kData);
  EXPECT_EQ(known.at(2).first, 5);
  EXPECT_EQ(known.at(3).kind, CommunicatorKind::kPipeline);
  EXPECT_EQ(known.at(3).first, 2);
}

TEST_F(CommunicatorsTest, ExpectWhatTheListSends) {
  Flow(1, 0, 1);
  Flow(2, 0, 2, 1000);
  Flow(2, 2, 0, 990);
  Flow(3, 0, 4, 40);
  Flow(3, 4, 0);
  const auto known = Match(alone_);
  // An all-reduce of two ranks sends its bytes once per rank: 2 calls, 4 micro-batches.
  EXPECT_DOUBLE_EQ(known.at(1).planned_bytes, 2 * 2 * 4 * 100);
  EXPECT_DOUBLE_EQ(known.at(2).planned_bytes, 2 * 1000);
  EXPECT_DOUBLE_EQ(known.at(2).measured_bytes, 1990);
  EXPECT_DOUBLE_EQ(known.at(3).planned_bytes, 4 * 10 + 4 * 10) << "activations one way, gradients the other";
  EXPECT_EQ(known.at(3).measured_bytes, 0) << "one of its flows is not measured yet";
  EXPECT_EQ(known.at(3).flows, 2);
  EXPECT_FALSE(known.at(3).slack);
  EXPECT_TRUE(known.at(2).slack);
}

TEST_F(CommunicatorsTest, WhatStaysOnAHostIsNotExpectedOnTheNetwork) {
  Flow(1, 0, 1);
  Flow(2, 0, 2);
  const auto known = Match({"h0", "h0", "h1", "h1", "h2", "h2", "h3", "h3"});
  EXPECT_EQ(known.at(1).planned_bytes, 0);
  EXPECT_DOUBLE_EQ(known.at(2).planned_bytes, 2 * 1000);
}

TEST_F(CommunicatorsTest, AJobOfFewerRanksThanItsPlanHasNone) {
  Flow(3, 0, 4);
  EXPECT_TRUE(Match({"h0", "h1", "h2", "h3"}).empty());
  EXPECT_TRUE(Match({}).empty());
}

TEST_F(CommunicatorsTest, WhatHasSlackGoesAfterWhatAPassWaitsFor) {
  Flow(2, 0, 2);
  Flow(3, 0, 4);
  const auto known = Match(alone_);
  EXPECT_EQ(ClassStep(known, 2, true, true), 1);
  EXPECT_EQ(ClassStep(known, 3, true, true), 0);
  EXPECT_EQ(ClassStep(known, 2, false, true), 0);
  EXPECT_EQ(ClassStep(known, 3, false, true), -1);
  EXPECT_EQ(ClassStep(known, 3, false, false), 0);
  EXPECT_EQ(ClassStep(known, 99, true, true), 0) << "not known";
  const std::map<uint64_t, KnownCommunicator> one = {{2, known.at(2)}};
  EXPECT_EQ(ClassStep(one, 2, true, true), 0) << "nothing of its job goes before it";
}

}  // namespace
}  // namespace weft::controller

#include "planner/plan/change_price.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/testing/small_models.h"

namespace weft::planner {
namespace {

using ::testing::HasSubstr;

StepProgram ProgramOf(const Strategy& strategy) {
  const JobSpec job{.name = "job", .model = SmallLlama(), .global_batch = 24, .sequence = 32, .precision = Precision::kFp32,
                    .gpus = GpuCount(strategy)};
  return ExpandProgram(job, strategy, ElementType::kFloat32).value();
}

/// Nodes of one GPU that send 8 Mbit/s of payload.
ClusterSpec Nodes(int64_t nodes) {
  ClusterSpec cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = 1;
  cluster.nic_rate = BitsPerSecond(8e6);
  cluster.measured = {{"link.nic.efficiency", 1}};
  return cluster;
}

// Two stages become two replicas: each rank is sent the other's stage, first one way and then back. All parameters are in one stage or
// the other, so that both sends together are three parts of fp32 of the whole model, at 1 MB a second.
TEST(PriceChange, APairSendsOneWayAndThenTheOther) {
  const double bytes = 3.0 * 4 * static_cast<double>(ParameterCount(SmallLlama()));
  const ChangePrice price = PriceChange(SmallLlama(), Nodes(2), ProgramOf({.pp = 2}), ProgramOf({.dp = 2})).value();
  EXPECT_EQ(price.moved, Bytes(static_cast<int64_t>(bytes)));
  EXPECT_NEAR(price.moving.count(), bytes / 1e6, 1e-9);
}

TEST(PriceChange, NothingMovesToTheSameProgramAndInsideANodeByItsOwnLinks) {
  EXPECT_EQ(PriceChange(SmallLlama(), Nodes(4), ProgramOf({.tp = 4}), ProgramOf({.tp = 4}))->moved, Bytes(0));
  ClusterSpec one = Nodes(1);
  one.gpus_per_node = 2;
  one.device = *FindDevice("cpu");
  one.intra_node_rate = BitsPerSecond(8e9);
  const ChangePrice price = PriceChange(SmallLlama(), one, ProgramOf({.pp = 2}), ProgramOf({.dp = 2})).value();
  EXPECT_GT(price.moved, Bytes(0));
  EXPECT_NEAR(price.moving.count(), static_cast<double>(price.moved.count()) / 1e9, 1e-12) << "not over the network";
}

// Four stages to four replicas: everybody is sent something by everybody. Leaves of two that let out a tenth per node make the rounds
// between them ten times as long; the round inside the leaves stays.
TEST(PriceChange, WhatLeavesANarrowLeafTakesLonger) {
  const StepProgram from = ProgramOf({.pp = 4}), to = ProgramOf({.dp = 4});
  ClusterSpec narrow = Nodes(4), wide = Nodes(4);
  narrow.tiers = {{"leaf", 2, BitsPerSecond(0.8e6)}, {"spine", 4, BitsPerSecond(0)}};
  wide.tiers = {{"leaf", 2, BitsPerSecond(8e6)}, {"spine", 4, BitsPerSecond(0)}};
  const double plain = PriceChange(SmallLlama(), Nodes(4), from, to)->moving.count();
  EXPECT_NEAR(PriceChange(SmallLlama(), wide, from, to)->moving.count(), plain, 1e-9) << "two nodes fill two nodes' worth";
  const double slow = PriceChange(SmallLlama(), narrow, from, to)->moving.count();
  EXPECT_GT(slow, 2 * plain);
  EXPECT_LT(slow, 10 * plain);
}

TEST(PriceChange, RefusesOtherSizes) {
  const auto price = PriceChange(SmallLlama(), Nodes(4), ProgramOf({.dp = 4}), ProgramOf({.dp = 2}));
  ASSERT_FALSE(price.has_value());
  EXPECT_THAT(price.error().message(), HasSubstr("programs of 4 and 2 ranks"));
  EXPECT_FALSE(PriceChange(SmallLlama(), Nodes(2), ProgramOf({.dp = 4}), ProgramOf({.tp = 4})).has_value()) << "too few GPUs";
}

}  // namespace
}  // namespace weft::planner

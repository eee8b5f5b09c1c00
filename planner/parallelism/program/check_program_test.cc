// What CheckProgram refuses of programs that ExpandProgram has made and somebody has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "planner/parallelism/program/expand.h"
#include "planner/parallelism/program/testing/small_models.h"

namespace weft::planner::inline parallelism {
namespace {

using ::testing::HasSubstr;

// A scatter within a shard group and the sum across groups belong together: what arrives would be added twice, or lost.
TEST(CheckProgram, RefusesShardsThatAreNotSummed) {
  JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 4};
  StepProgram program = ExpandProgram(job, {.dp = 4, .zero_stage = 2, .shard_group = 2}, ElementType::kFloat32).value();
  std::vector<Instruction>& list = program.classes[0].instructions;
  const auto sum = std::find_if(list.begin(), list.end(), [](const Instruction& i) { return i.of_shard; });
  ASSERT_NE(sum, list.end());
  sum->of_shard = false;
  sum->communicator = program.classes[0].units[0].shard;
  EXPECT_THAT(CheckProgram(program).error().message(), HasSubstr("do not follow each other"));
}

TEST(CheckProgram, RefusesSharesThatAreNotTheBatch) {
  const JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 2};
  const std::vector<BatchShare> shares = {{.replicas = 1, .sequences = 5}, {.replicas = 1, .sequences = 3}};
  const StepProgram good = ExpandProgram(job, {.dp = 2}, ElementType::kFloat32, {.shares = shares}).value();
  const auto refused = [&](std::vector<int64_t> of_file) {
    StepProgram bad = good;
    bad.shares = std::move(of_file);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  EXPECT_THAT(refused({5, 2}), HasSubstr("1 of 8 sequences are no replica's"));
  EXPECT_THAT(refused({5, 4}), HasSubstr("a share of 4 of the last 3 sequences"));
  EXPECT_THAT(refused({8, 0}), HasSubstr("a share of 0"));
  EXPECT_THAT(refused({8}), HasSubstr("1 shares of the batch"));
  EXPECT_THAT(refused({3, 5}), HasSubstr("micro-batch 3 of 3"));
  StepProgram mixed = good;
  mixed.ranks[1].rank_class = 0;
  EXPECT_THAT(CheckProgram(mixed).error().message(), HasSubstr("class 0: ranks of 5 and of 3 micro-batches"));
}

TEST(CheckProgram, RefusesListsThatAGridCannotRun) {
  const JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 4};
  const Strategy s{.tp = 4, .micro_batch = 4, .tensor_mode = TensorMode::k2D};
  const StepProgram good = ExpandProgram(job, s, ElementType::kFloat32).value();
  const auto refused = [&](auto change) {
    StepProgram bad = good;
    change(bad);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  const auto first = [](StepProgram& p, StepAction action, ModelPart part) -> Instruction& {
    for (Instruction& i : p.classes[0].instructions) {
      if (i.action == action && (!OfPart(action) || i.part == part)) return i;
    }
    return p.classes[0].instructions.front();
  };
  EXPECT_THAT(refused([](StepProgram& p) { p.grid.side = 3; }), HasSubstr("a grid of side 3 and depth 1 of 4 tensor ranks"));
  EXPECT_THAT(refused([](StepProgram& p) { p.grid = {}; }), HasSubstr("without a grid of tensor ranks"));
  EXPECT_THAT(refused([](StepProgram& p) { p.micro_batch = 1; }), HasSubstr("expected whole pieces"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kBroadcast, {}).tag = 2; }),
              HasSubstr("tag 2, expected a place among 2"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kReduce, {}).tag = 1; }),
              HasSubstr("reads 1 values and writes 1, expected 2"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kProduct).slices = 4; }),
              HasSubstr("slice 0 of 4 of product"));
  EXPECT_THAT(refused([&](StepProgram& p) {
                Instruction& i = first(p, StepAction::kForward, ModelPart::kProduct);
                std::swap(i.inputs[0], i.inputs[1]);
              }),
              HasSubstr("shapes do not fit a product and its panels"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kParameters, ModelPart::kQkv).part = ModelPart::kHeads; }),
              HasSubstr("heads has no such computation"));
}

// Whatever single field of an instruction a file gets wrong, the program is refused or still one that can be run.
TEST(CheckProgram, RefusesListsThatCannotRun) {
  JobSpec job{.name = "j", .model = SmallGpt(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 8};
  const StepProgram good = ExpandProgram(job, {.dp = 2, .tp = 2, .pp = 2}, ElementType::kFloat32).value();
  ASSERT_TRUE(CheckProgram(good));
  const auto refused = [&](auto change) {
    StepProgram bad = good;
    change(bad);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  EXPECT_THAT(refused([](StepProgram& p) { p.ranks[3].rank_class = 9; }), HasSubstr("rank 3 stands outside"));
  EXPECT_THAT(refused([](StepProgram& p) { p.communicators[0].groups[0][0] = 77; }), HasSubstr("rank 77 twice, or not of 8"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].outputs[0] = 1 << 30; }), HasSubstr("writes value"));
  EXPECT_THAT(refused([](StepProgram& p) { std::swap(p.classes[0].instructions[0], p.classes[0].instructions[1]); }),
              HasSubstr("which nothing wrote before"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions.pop_back(); }), HasSubstr("do not say the same"));
  EXPECT_THAT(refused([](StepProgram& p) { p.communicators[1].sums = {Algorithm::kHierarchical, 2}; }), HasSubstr("sums by hierarchical:2"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].slices = 4; }), HasSubstr("slice 0 of 4 of embedding"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].every = 2; }), HasSubstr("every 2 steps"));
  EXPECT_THAT(refused([](StepProgram& p) {
                for (Instruction& i : p.classes[0].instructions) {
                  if (i.unit >= 0 && i.action == StepAction::kAllReduce) i.of_shard = true;
                }
              }),
              HasSubstr("of a shard over communicator"));
  EXPECT_THAT(refused([](StepProgram& p) {
                for (Instruction& i : p.classes[0].instructions) {
                  if (i.unit >= 0 && i.action == StepAction::kAllReduce) i.action = StepAction::kMix;
                }
              }),
              HasSubstr("of replicas that are equal"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[1].units[0].elements += 1; }), HasSubstr("expected its blocks'"));
  EXPECT_THAT(refused([](StepProgram& p) { p.micro_batch = 3; }), HasSubstr("in micro-batches of 3"));
  EXPECT_THAT(refused([](StepProgram& p) { p.communicators.resize(70'000); }), HasSubstr("70000 communicators"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].part = ModelPart::kPositions; }),
              HasSubstr("positions has no such computation"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].instructions[0].layer = 0; }), HasSubstr("embedding of layer 0"));
  EXPECT_THAT(refused([](StepProgram& p) { p.classes[0].blocks[0].layer = 99; }), HasSubstr("in layer 99 of 4"));
  EXPECT_THAT(refused([](StepProgram& p) {
                for (const Instruction& i : p.classes[0].instructions) {
                  if (i.action == StepAction::kData && i.part == ModelPart::kMlp)
                    p.classes[0].values[static_cast<size_t>(i.outputs[0])].rows = 1;
                }
              }),
              HasSubstr("of mlp is 1 x 64, expected"));
  EXPECT_THAT(refused([](StepProgram& p) {
                for (Instruction& i : p.classes[0].instructions) i.needs = {1 << 29};
              }),
              HasSubstr("expected an earlier communication"));
}

// The same of experts, and of attention over context ranks.
TEST(CheckProgram, RefusesExpertsAndContextsThatCannotRun) {
  JobSpec job{.name = "j", .model = SmallMixtral(), .global_batch = 8, .sequence = 32, .precision = Precision::kFp32, .gpus = 8};
  const StepProgram good = ExpandProgram(job, {.dp = 2, .tp = 2, .cp = 2, .ep = 4}, ElementType::kFloat32).value();
  ASSERT_TRUE(CheckProgram(good));
  const auto refused = [&](auto change) {
    StepProgram bad = good;
    change(bad);
    const Status status = CheckProgram(bad);
    return status ? std::string("accepted") : status.error().message();
  };
  const auto first = [](StepProgram& p, StepAction action, ModelPart part) -> Instruction& {
    return *std::find_if(p.classes[0].instructions.begin(), p.classes[0].instructions.end(),
                         [&](const Instruction& i) { return i.action == action && i.part == part; });
  };
  EXPECT_THAT(refused([](StepProgram& p) { p.experts = 0; }), HasSubstr("expected none of a model without"));
  EXPECT_THAT(refused([](StepProgram& p) { p.experts_per_token = 9; }), HasSubstr("expected them to divide"));
  EXPECT_THAT(refused([](StepProgram& p) { p.expert_ranks = 3; }), HasSubstr("expected them to divide"));
  EXPECT_THAT(refused([](StepProgram& p) { p.expert_hidden = 0; }), HasSubstr("a width of 0"));
  EXPECT_THAT(refused([](StepProgram& p) { p.sequence = 34; }), HasSubstr("two equal pieces"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kAttentionBlock).tag = 1; }),
              HasSubstr("reads 2 values and writes 2, expected 4 and 2"));
  EXPECT_THAT(refused([&](StepProgram& p) {
                for (Instruction& i : p.classes[0].instructions) {
                  if (i.part == ModelPart::kAttentionBlock && i.tag == 1 && i.action == StepAction::kForward) i.tag = 2;
                }
              }),
              HasSubstr("keys from 2 places away, of 2"));
  EXPECT_THAT(refused([&](StepProgram& p) { first(p, StepAction::kForward, ModelPart::kAttentionBlock).keeps = true; }),
              HasSubstr("keeps nothing"));
  EXPECT_THAT(refused([&](StepProgram& p) {
                p.classes[0].values[static_cast<size_t>(first(p, StepAction::kForward, ModelPart::kDispatch).outputs[0])].rows = 3;
              }),
              HasSubstr("of dispatch is 3 x 64, expected"));
}

// By hand: eight positions in four pieces; the first rank has the first and the last.
TEST(PositionsOf, GivesEachRankAPieceFromTheFrontAndOneFromTheBack) {
  EXPECT_EQ(PositionsOf(8, 2, 0), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(PositionsOf(8, 2, 1), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(PositionsOf(3, 1, 0), (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace weft::planner::parallelism

#include "formats/program_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/parallelism/program/testing/small_models.h"

namespace weft::formats {
namespace {

using ::testing::HasSubstr;

planner::StepProgram Sample(const planner::Strategy& strategy, const planner::ProgramChoices& choices = {}, bool moe = false) {
  planner::JobSpec job{.name = "j",
                       .model = {.name = "gpt",
                                 .layers = 4,
                                 .hidden = 16,
                                 .heads = 4,
                                 .kv_heads = 4,
                                 .head_dim = 4,
                                 .ffn_hidden = 64,
                                 .vocab = 256,
                                 .max_positions = 32},
                       .global_batch = 8,
                       .sequence = 8,
                       .precision = planner::Precision::kFp32,
                       .gpus = planner::GpuCount(strategy)};
  if (moe) {
    job.model.architecture = planner::Architecture::kMixtral;
    job.model.experts = 4;
    job.model.experts_per_token = 2;
    job.model.expert_ffn_hidden = 64;
    job.model.gated_mlp = true;
    job.model.numerics.activation = planner::Activation::kSilu;
  }
  return planner::ExpandProgram(job, strategy, planner::ElementType::kFloat64, choices).value();
}

void ExpectReads(const planner::StepProgram& program) {
  const auto read = ParseProgramJson(WriteProgramJson(program), "p.json");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, program);
  EXPECT_EQ(planner::DigestOf(*read), planner::DigestOf(program));
}

TEST(ProgramJson, ReadsWhatItWrote) {
  for (const planner::Strategy& s :
       {planner::Strategy{.dp = 2, .tp = 2, .pp = 2}, planner::Strategy{.dp = 2, .zero_stage = 3},
        planner::Strategy{.tp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true, .schedule = planner::ScheduleKind::kZbV},
        planner::Strategy{.dp = 2, .cp = 2}, planner::Strategy{.dp = 4, .ep = 2, .etp = 2},
        planner::Strategy{.dp = 4, .zero_stage = 3, .shard_group = 2}, planner::Strategy{.dp = 2, .local_steps = 3},
        planner::Strategy{.dp = 2, .gradient_wire = planner::GradientWire::kFp8},
        planner::Strategy{.dp = 2, .data_sync = planner::DataSync::kGossip}}) {
    ExpectReads(Sample(s, {}, s.ep > 1));
  }
  const planner::AlgorithmSpec servers{.algorithm = planner::Algorithm::kParameterServer, .parameter = 2};
  ExpectReads(Sample({.dp = 2, .data_sync = planner::DataSync::kParameterServer}, {.sums = servers}));
  ExpectReads(Sample({.dp = 4}, {.sums = {.algorithm = planner::Algorithm::kTree}}));
  const std::vector<planner::BatchShare> shares = {{.replicas = 2, .sequences = 6}, {.replicas = 1, .sequences = 2}};
  const planner::StepProgram unequal = Sample({.dp = 3}, {.shares = shares});
  EXPECT_EQ(unequal.shares, (std::vector<int64_t>{3, 3, 2}));
  ExpectReads(unequal);
  const std::vector<planner::StageOperators> operators = {
      {.runs = {{.layers = 4, .attention = {.slices = 4, .sharded = 3, .kept = true}, .mlp = {.slices = 1, .sharded = 1}}}, .head = true}};
  ExpectReads(Sample({.dp = 2, .zero_stage = 3, .sharding = planner::Sharding::kOperator}, {.operators = operators}));
}

planner::StepProgram SampleOfCnn(const planner::Strategy& strategy) {
  const planner::JobSpec job{.name = "j", .model = planner::SmallCnn(), .global_batch = 4, .sequence = 1,
                             .precision = planner::Precision::kFp32, .gpus = planner::GpuCount(strategy)};
  return planner::ExpandProgram(job, strategy, planner::ElementType::kFloat64).value();
}

TEST(ProgramJson, ReadsLayersOfACnn) {
  ExpectReads(SampleOfCnn({.dp = 2, .tp = 2}));
  ExpectReads(SampleOfCnn({.dp = 2, .zero_stage = 3}));
  std::string bad = WriteProgramJson(SampleOfCnn({.tp = 2}));
  const std::string from = "\"kernel\":[3,1,3]";
  bad.replace(bad.find(from), from.size(), "\"kernel\":[3,2,3]");
  EXPECT_THAT(ParseProgramJson(bad, "p.json").error().message(), HasSubstr("p.json: layer 3: a kernel of 3 x 2 x 3"));
  bad.replace(bad.find("[3,2,3]"), 7, "[3,-2,3]");
  EXPECT_THAT(ParseProgramJson(bad, "p.json").error().message(), HasSubstr("p.json: cnn: key \"layers[3].kernel\""));
}

TEST(ProgramJson, RefusesByPlaceAndValue) {
  const std::string text = WriteProgramJson(Sample({.dp = 2}));
  const auto refused = [&](std::string_view from, std::string_view to) {
    std::string bad = text;
    bad.replace(bad.find(from), from.size(), to);
    const auto read = ParseProgramJson(bad, "p.json");
    return read ? std::string("accepted") : read.error().message();
  };
  EXPECT_THAT(refused("\"version\":1", "\"version\":2"), HasSubstr("version"));
  EXPECT_THAT(refused("\"version\":1", "\"version\":1,\"colour\":2"), HasSubstr("\"colour\": unknown"));
  EXPECT_THAT(refused("\"fp64\"", "\"fp16\""), HasSubstr("expected fp32 or fp64"));
  EXPECT_THAT(refused("\"part\":\"mlp\"", "\"part\":\"mpl\""), HasSubstr("part"));
  EXPECT_THAT(refused("\"do\":\"forward\"", "\"do\":\"ford\""), HasSubstr("instructions["));
  EXPECT_THAT(refused("\"keeps\":true", "\"peeks\":true"), HasSubstr("unknown"));
  const std::string narrow = WriteProgramJson(Sample({.dp = 2, .gradient_wire = planner::GradientWire::kBf16}));
  std::string wide = narrow;
  wide.replace(wide.find("\"bf16\""), 6, "\"fp16\"");
  EXPECT_THAT(ParseProgramJson(wide, "p.json").error().message(), HasSubstr("expected whole, bf16 or fp8"));
  EXPECT_THAT(refused("\"kind\":\"data\"", "\"kind\":\"data\",\"sums\":\"torus\""), HasSubstr("sums by torus over 2 ranks"));
  EXPECT_THAT(refused("\"replica\":1", "\"replica\":4"), HasSubstr("outside the grid"));
}

// Bytes changed at random: refused, or a program that passed its check; never a crash.
TEST(ProgramJson, SurvivesRandomBytes) {
  const std::string text = WriteProgramJson(Sample({.dp = 2, .pp = 2}));
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string bad = text;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>("0123456789,-[]{}x"[random() % 17]);
    const auto read = ParseProgramJson(bad, "p.json");
    refused += read ? 0 : 1;
    if (!read) continue;
    EXPECT_TRUE(planner::CheckProgram(*read));
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace weft::formats

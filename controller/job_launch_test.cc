#include "controller/job_launch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/launch_variable.h"
#include "controller/config.h"
#include "controller/job_planner.h"
#include "formats/hf_config.h"
#include "formats/train_plan.h"
#include "netplugin/abi/agent_socket.h"

namespace weft::controller {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Llama 3 8B, for weft-train with bytes for words and fewer layers, on four hosts of eight GPUs.
v1::JobSpec Spec(const std::string& framework) {
  v1::JobSpec spec;
  spec.set_job_id("llama");
  planner::ModelSpec model = formats::ResolveModel("llama3-8b").value();
  spec.set_sequence(4096);
  if (framework.starts_with("weft-train")) {
    model.vocab = 256;
    model.layers = 4;
    spec.set_precision("fp32");
  }
  spec.set_model_config_json(formats::WriteHfConfig(model));
  spec.set_global_batch(64);
  spec.set_framework(framework);
  spec.set_ranks_per_host(8);
  for (int i = 1; i <= 4; ++i) spec.add_hosts(fmt::format("h{}", i));
  return spec;
}

PlannedJob Planned(const v1::JobSpec& spec) {
  JobPlannerOptions options = DefaultConfig().planner;
  options.cluster = planner::FindClusterPreset("dgx-h100", 1).value();
  auto planned = PlanJob(spec, {}, options);
  EXPECT_TRUE(planned.has_value()) << planned.error().message();
  return planned.value_or(PlannedJob());
}
PlannedJob Planned(const std::string& framework) { return Planned(Spec(framework)); }

/// What `printf %b` makes of it.
std::string Unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') out += text[i];
    else out += text[++i] == 'n' ? '\n' : text[i];
  }
  return out;
}

// Every program of docs/frameworks.md has a strategy, and arguments or files that its launch takes; the environment holds them.
TEST(JobLaunch, EveryProgramIsHandedItsStrategy) {
  for (const planner::FrameworkDescription& program : planner::AllFrameworks()) {
    const auto framework = planner::ParseFramework(program.name);
    if (!framework || *framework == planner::Framework::kAny || *framework == planner::Framework::kWeftTrainDdp) continue;
    SCOPED_TRACE(program.name);
    const PlannedJob planned = Planned(std::string(program.name));
    const v1::JobPlan& plan = planned.plan;
    EXPECT_THAT(planned.errors, IsEmpty());
    EXPECT_EQ(plan.origin(), "search");
    EXPECT_TRUE(plan.has_strategy());
    EXPECT_GT(plan.arguments_size() + plan.files_size(), 0);
    EXPECT_EQ(plan.environment().contains(kArgumentsVariable), plan.arguments_size() > 0);
    size_t bytes = 0;
    for (const auto& [name, value] : plan.environment()) {
      EXPECT_EQ(value.find('\n'), value.npos) << name;
      bytes += name.size() + value.size() + 2;
    }
    EXPECT_LE(bytes, sizeof(abi::EnvironmentReply::text));
    EXPECT_THAT(plan.why(), Contains(HasSubstr("enforced: the strategy, where " + planner::FrameworkTitle(*framework))));
    EXPECT_THAT(plan.why(), Not(Contains(HasSubstr("not handed"))));
    EXPECT_EQ(plan.environment().at("NCCL_NET_PLUGIN"), "weft");
  }
}

// The words of --emit, which are enough to make the program again; no table of collectives, no bucket beside them.
TEST(JobLaunch, WeftTrainIsHandedItsProgram) {
  const PlannedJob planned = Planned("weft-train");
  const v1::JobPlan& plan = planned.plan;
  const std::vector<std::string> words(plan.arguments().begin(), plan.arguments().end());
  ASSERT_GE(words.size(), 8u);
  EXPECT_EQ(words[0], "--strategy");
  EXPECT_THAT(words, Not(Contains("--bucket")));
  EXPECT_EQ(plan.collectives_size(), 0);
  EXPECT_EQ(plan.environment().at(kArgumentsVariable), fmt::format("{}", fmt::join(words, " ")));
  const auto strategy = formats::ParseStrategyText(words[1]);
  ASSERT_TRUE(strategy) << strategy.error().message();
  EXPECT_EQ(planner::DescribeStrategy(*strategy), plan.strategy().text());
  EXPECT_THAT(plan.why(), Contains(HasSubstr("enforced: the algorithms of its collectives, which the program has")));
  EXPECT_THAT(plan.why(), Not(Contains(HasSubstr("not enforced"))));
}

TEST(JobLaunch, WhatWeftTrainDoesNotRunIsRefusedWithTheReason) {
  v1::JobSpec spec = Spec("weft-train");
  spec.set_precision("bf16");
  EXPECT_THAT(Planned(spec).errors, Contains(HasSubstr("precision bf16: not executed, expected fp32")));
  spec = Spec("weft-train");
  spec.set_model_config_json(formats::WriteHfConfig(formats::ResolveModel("llama3-8b").value()));
  EXPECT_THAT(Planned(spec).errors, Contains(HasSubstr("a vocabulary of 128256, expected 256: words are bytes")));
  spec = Spec("weft-train");
  spec.add_allow("low_precision");
  EXPECT_TRUE(Planned(spec).plan.has_strategy());
  spec.set_framework("megatron");
  EXPECT_THAT(Planned(spec).errors, Contains(HasSubstr("expected none, any or weft-train")));
}

// As before programs were planned for: the bucket, and the table of its own collectives.
TEST(JobLaunch, WithoutAPlanWeftTrainIsToldItsBucket) {
  const v1::JobPlan plan = Planned("weft-train-ddp").plan;
  ASSERT_EQ(plan.arguments_size(), 2);
  EXPECT_EQ(plan.arguments(0), "--bucket");
  EXPECT_EQ(plan.strategy().dp(), 32);
}

TEST(JobLaunch, FilesTravelAsTextThatPrintfGivesBack) {
  const v1::JobPlan plan = Planned("torchtitan").plan;
  ASSERT_EQ(plan.files_size(), 2);
  EXPECT_EQ(plan.files(0).name(), "torchtitan.toml");
  EXPECT_EQ(Unescaped(plan.environment().at("WEFT_FILE_TORCHTITAN_TOML")), plan.files(0).content());
  EXPECT_EQ(Unescaped(plan.environment().at("WEFT_FILE_WEFT_FLAVOR_PY")), plan.files(1).content());
  EXPECT_EQ(plan.environment().at("PYTORCH_ALLOC_CONF"), "expandable_segments:True");
  EXPECT_EQ(plan.arguments_size(), 0);
  EXPECT_THAT(plan.why(), Contains(HasSubstr("--job.config_file torchtitan.toml")));
}

TEST(JobLaunch, WhatTheScriptHasToDoIsSaid) {
  EXPECT_THAT(Planned("accelerate").plan.why(),
              Contains(AllOf(HasSubstr("not enforced: micro_batch="), HasSubstr("gradient_accumulation_steps"))));
  EXPECT_THAT(Planned("megatron-bridge").plan.why(),
              Contains(HasSubstr("not enforced: bucket_bytes and the model's sizes: the recipe's own")));
}

TEST(JobLaunch, TorchrunIsToldWhatHoldsAndWhatDoesNot) {
  const v1::JobPlan plan = Planned("torchrun").plan;
  EXPECT_EQ(plan.arguments_size() + plan.files_size(), 0);
  EXPECT_THAT(plan.why(), Contains(HasSubstr("enforced: the environment and, where one is given, the table of collectives")));
  EXPECT_THAT(plan.why(), Contains(HasSubstr("not enforced: how your script splits the model")));
  EXPECT_EQ(plan.environment().at("WEFT_JOB_ID"), "llama");
}

TEST(JobLaunch, NoProgramNoArguments) {
  const v1::JobPlan plan = Planned("any").plan;
  EXPECT_TRUE(plan.has_strategy());
  EXPECT_EQ(plan.arguments_size() + plan.files_size(), 0);
  EXPECT_THAT(plan.why(), Contains(HasSubstr("not enforced: the strategy: no program is named")));
}

// A host order of 4096 characters and a table leave little of the 8184 bytes that an agent hands on.
TEST(JobLaunch, WhatDoesNotFitIsNamed) {
  v1::JobPlan plan;
  plan.add_arguments("--tensor-model-parallel-size");
  plan.add_arguments("8");
  (*plan.mutable_environment())["WEFT_HOST_ORDER"] = std::string(8150, 'h');
  FillHandover(plan);
  EXPECT_FALSE(plan.environment().contains(kArgumentsVariable));
  EXPECT_THAT(plan.why(), ElementsAre(AllOf(HasSubstr("not handed to the batch system: WEFT_ARGUMENTS: "),
                                            HasSubstr("an agent hands on 8184"))));
  plan = {};
  plan.add_arguments("a b");
  FillHandover(plan);
  EXPECT_THAT(plan.environment(), IsEmpty());
  EXPECT_THAT(plan.why(), ElementsAre(HasSubstr("an argument has blanks or quotes")));
}

TEST(JobLaunch, WordsAreAShells) {
  EXPECT_THAT(ShellWords(R"(--layout "Et*7|t*8L"  --recompute-modules a b "")"),
              ElementsAre("--layout", "Et*7|t*8L", "--recompute-modules", "a", "b", ""));
  EXPECT_THAT(ShellWords("  "), IsEmpty());
}

}  // namespace
}  // namespace weft::controller

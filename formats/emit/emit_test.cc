// What all writers share, and those of no program: targets, refusals, torchrun, NCCL, the environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/emit/emit_testing.h"
#include "planner/parallelism/legality.h"

namespace weft::formats {
namespace {

using planner::Framework;
using planner::JobSpec;
using planner::Strategy;
using testing::HasSubstr;
using testing::Not;

// torchrun --help (PyTorch 2); NCCL's 'Environment Variables' page.
const std::set<std::string> kTorchrun = {"nnodes", "nproc-per-node", "node-rank", "rdzv-id", "rdzv-backend",
                                         "rdzv-endpoint", "rdzv-conf", "max-restarts", "master-addr", "master-port"};
const std::set<std::string> kNccl = {"NCCL_NET_PLUGIN", "NCCL_CROSS_NIC", "NCCL_PXN_DISABLE"};

TEST(Emit, TorchrunStartsOneProcessPerGpuOfEveryHost) {
  const JobSpec job = EmitJob("llama3-8b", 144, 8192);
  const std::string dgx = EmitText(EmitTarget::kTorchrun, job, EmitCluster("dgx-h100", 4), Strategy{.dp = 16});
  ExpectSubset(OptionsOf(dgx, R"(--([a-z-]+))"), kTorchrun);
  EXPECT_THAT(dgx, HasSubstr("torchrun --nnodes=2 --nproc-per-node=8 "));
  EXPECT_THAT(dgx, HasSubstr("# weft plan: llama3-8b on dgx-h100, 16 GPUs: dp=16 tp=1 pp=1"));
  EXPECT_THAT(EmitText(EmitTarget::kTorchrun, job, EmitCluster("gb200-nvl72", 1), Strategy{.dp = 72}),
              HasSubstr("torchrun --nnodes=18 --nproc-per-node=4 "));
  EXPECT_THAT(EmitText(EmitTarget::kTorchrun, job, EmitCluster("dgx-h100", 1), Strategy{.dp = 3}),
              HasSubstr("torchrun --nnodes=1 --nproc-per-node=3 "));
}

TEST(Emit, NcclNeedsThePluginOnlyAcrossNodes) {
  const JobSpec job = EmitJob("mixtral-8x7b", 144, 8192);
  const std::string one = EmitText(EmitTarget::kNccl, job, EmitCluster("dgx-h100", 1), Strategy{.dp = 8});
  EXPECT_THAT(one, HasSubstr("\nNCCL_NET_PLUGIN=none\n"));
  const std::string two = EmitText(EmitTarget::kNccl, job, EmitCluster("dgx-h100", 2), Strategy{.dp = 2, .tp = 8, .ep = 8, .etp = 2});
  ExpectSubset(OptionsOf(two, R"(^([A-Z_]+)=)"), kNccl);
  EXPECT_THAT(two, HasSubstr("\n#NCCL_NET_PLUGIN=weft\n")) << "until it has run under NCCL on GPUs it is a choice";
  EXPECT_THAT(two, HasSubstr("\nNCCL_CROSS_NIC=0\n"));
  EXPECT_THAT(two, HasSubstr("\nNCCL_PXN_DISABLE=0\n"));
  EXPECT_THAT(EmitText(EmitTarget::kNccl, job, EmitCluster("dgx-h100", 2), Strategy{.tp = 16}), Not(HasSubstr("NCCL_CROSS_NIC")));
}

struct Refusal {
  EmitTarget target;
  Strategy strategy;
  const char* message;
};

TEST(Emit, WhatATargetCannotRunIsNamed) {
  using planner::ScheduleKind;
  const Refusal refusals[] = {
      {EmitTarget::kMegatron, {.pp = 2, .vpp = 2, .schedule = ScheduleKind::kZbV}, "megatron: schedule zb-v, expected 1f1b"},
      {EmitTarget::kMegatron, {.tp = 4, .tensor_mode = planner::TensorMode::k2D}, "megatron: tensor mode 2d, expected 1d"},
      {EmitTarget::kMegatron, {.dp = 16, .zero_stage = 3}, "megatron: zero_stage=3, expected 0 or 1"},
      {EmitTarget::kMegatronBridge, {.dp = 16, .zero_stage = 2}, "megatron-bridge: zero_stage=2, expected 0 or 1"},
      {EmitTarget::kTorchtitan, {.dp = 2, .zero_stage = 1}, "torchtitan: zero_stage=1, expected 0"},
      {EmitTarget::kTorchtitan, {.dp = 2, .pp = 2, .zero_stage = 3, .keep_after_forward = true,
                                 .schedule = ScheduleKind::kZbH1}, "torchtitan: schedule zb-h1, expected gpipe"},
      {EmitTarget::kTorchtitan, {.dp = 6, .cp = 2, .zero_stage = 3, .shard_group = 3},
       "torchtitan: zero_stage=3 shard_group=3 with dp=6 cp=2, expected at least two shards, a multiple of cp whose quotient divides dp"},
      {EmitTarget::kDeepSpeed, {.cp = 2}, "deepspeed: context mode ring, expected ulysses"},
      {EmitTarget::kDeepSpeed, {.pp = 2}, "deepspeed: pp=2, expected 1: no key of the JSON file makes a pipeline"},
      {EmitTarget::kDeepSpeed, {.dp = 4, .zero_stage = 3, .shard_group = 2}, "deepspeed: shard_group=2, expected shards over"},
      {EmitTarget::kAccelerate, {.dp = 4, .pp = 2, .zero_stage = 3, .keep_after_forward = true}, "accelerate: pp=2, expected 1"},
      {EmitTarget::kTorchrun, {.dp = 12}, "torchrun: 12 GPUs on hosts of 8, expected whole hosts"},
  };
  for (const Refusal& refusal : refusals) {
    const auto text = TryEmit(refusal.target, EmitJob("llama3-8b", 64, 8192), EmitCluster("dgx-h100", 2), refusal.strategy);
    ASSERT_FALSE(text) << refusal.message;
    EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(text.error().message(), HasSubstr(refusal.message));
  }
}

// Whoever plans for weft-train and starts something else by torchrun is told that local steps do not travel.
TEST(Emit, TorchrunSaysNothingOfOtherTraining) {
  const JobSpec job = EmitJob("llama3-8b", 64, 8192);
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 2);
  const Strategy s{.dp = 16, .local_steps = 4};
  const EmitRequest request{.job = job, .cluster = cluster, .strategy = s, .framework = Framework::kWeftTrain};
  EXPECT_THAT(Emit(EmitTarget::kTorchrun, request).error().message(), HasSubstr("local_steps=4"));
  EXPECT_TRUE(Emit(EmitTarget::kEnvironment, request));
}

/// Every combination of some values of what frameworks differ in.
std::vector<Strategy> Mixed() {
  using planner::ContextMode;
  std::vector<Strategy> all;
  for (const planner::ScheduleKind schedule : planner::kAllSchedules) {
    const bool chunks = schedule == planner::ScheduleKind::kInterleaved || schedule == planner::ScheduleKind::kZbV;
    for (int64_t zero = 0; zero <= 3; ++zero) {
      for (const int64_t tp : {1, 2}) {
        for (const int64_t cp : {1, 4}) {
          for (const int64_t group : {0, 2, 8}) {
            for (const ContextMode mode : {ContextMode::kRing, ContextMode::kAllGather, ContextMode::kUlysses}) {
              for (const int64_t layers : {-1, 4}) {
                Strategy s{.dp = 8, .tp = tp, .pp = 4, .cp = cp, .zero_stage = zero, .shard_group = group,
                           .recompute = planner::Recompute::kFull, .recompute_layers = layers, .context_mode = mode,
                           .schedule = schedule};
                s.etp = 1;
                s.vpp = chunks ? 2 : 1;
                s.keep_after_forward = zero == 3;
                s.sequence_parallel = tp == 2;
                all.push_back(s);
                s.pp = 1;
                s.keep_after_forward = s.sequence_parallel = false;
                if (!chunks) all.push_back(s);
              }
            }
          }
        }
      }
    }
  }
  return all;
}

// A plan per operator as FSDP2's modules; what FSDP2 lacks is said, and who has no such choice refuses.
TEST(Emit, ShardingPerOperatorIsListedByModule) {
  const Strategy s{.dp = 4, .tp = 2, .pp = 2, .zero_stage = 3, .sharding = planner::Sharding::kOperator};
  const planner::OperatorDecision sharded{.slices = 1, .sharded = 1, .kept = false}, replicated{}, kept{.kept = true},
      half{.slices = 4, .sharded = 2, .kept = false};
  const std::vector<planner::StageOperators> operators = {
      {.runs = {{10, false, sharded, kept}, {6, false, replicated, half}}, .embedding = true},
      {.runs = {{16, false, kept, kept}}, .head = true}};
  const JobSpec job = EmitJob("llama3-8b", 64, 4096);
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 2);
  const EmitRequest request{.job = job, .cluster = cluster, .strategy = s, .operators = operators};
  {
    const std::string text = Emit(EmitTarget::kTorchrun, request).value();
    for (const char* line : {"#   tok_embeddings: reshard_after_forward=True\n",
                             "# stage 0\n", "#   layers.0-9.attention: reshard_after_forward=True\n",
                             "#   layers.0-9.feed_forward: reshard_after_forward=False\n",
                             "#   layers.10-15.attention: mesh with 1 shard: replicated\n",
                             "#   layers.10-15.feed_forward: reshard_after_forward=True  # planned: 2 of 4 slices; FSDP2 has "
                             "no slices",
                             "# stage 1\n#   layers.16-31.attention: reshard_after_forward=False\n",
                             "#   output: reshard_after_forward=True\n", "6 replicated, 42 kept,\n# 12 sharded, 6 in slices"}) {
      EXPECT_THAT(text, HasSubstr(line));
    }
  }
  for (const EmitTarget target : {EmitTarget::kMegatron, EmitTarget::kTorchtitan, EmitTarget::kDeepSpeed}) {
    const Result<std::string> text = Emit(target, request);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(text.error().message(), HasSubstr(target == EmitTarget::kDeepSpeed ? "pp=2, expected 1"
                                                                                   : "sharding osdp, expected uniform"));
  }
}

// What the search takes a framework to run, its writer must be able to say.
TEST(Emit, WhatRunsCanBeWritten) {
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 32);
  for (size_t i = 0; i < static_cast<size_t>(Framework::kPublished); ++i) {
    const auto framework = static_cast<Framework>(i);
    const auto target = EmitTargetOf(framework);
    if (!target) continue;
    JobSpec job = EmitJob("llama3-8b", 64, 8192);
    const bool trains = framework == Framework::kWeftTrain;
    if (trains) {
      job.model.vocab = 256;
      job.precision = planner::Precision::kFp32;
    }
    int runs = 0;
    for (const Strategy& s : Mixed()) {
      const bool fits = planner::CheckLegal(job, planner::GpuCount(s), s) == planner::Rule::kLegal;
      if (!fits || planner::WhyCannotRun(framework, {job, cluster, s})) continue;
      if (trains && s.sharding == planner::Sharding::kOperator) continue;  // with its operators' decisions: train_plan_test.cc
      ++runs;
      const Result<std::string> text = TryEmit(*target, job, cluster, s, framework);
      EXPECT_TRUE(text) << text.error().message();
    }
    EXPECT_GT(runs, 5) << planner::FrameworkName(framework);
  }
}

TEST(Emit, TheEnvironmentHasNameAndReason) {
  const JobSpec job = EmitJob("llama3-8b", 64, 8192);
  const Strategy s{.dp = 4, .tp = 4, .zero_stage = 1, .sequence_parallel = true};
  const std::string text = EmitText(EmitTarget::kEnvironment, job, EmitCluster("dgx-h100", 2), s, Framework::kMegatron);
  EXPECT_EQ(OptionsOf(text, R"(^([A-Z_]+)=)"), std::set<std::string>{"CUDA_DEVICE_MAX_CONNECTIONS"});
  EXPECT_THAT(text, HasSubstr("\n# communication is launched before"));
  EXPECT_TRUE(OptionsOf(EmitText(EmitTarget::kEnvironment, job, EmitCluster("dgx-h100", 2), s), R"(^([A-Z_]+)=)").empty())
      << "of no program, nothing";
}

TEST(Emit, TargetsAreReadInOrder) {
  const auto targets = ParseEmitTargets("nccl,torchrun,megatron,torchtitan,deepspeed,environment,megatron-bridge,accelerate").value();
  ASSERT_EQ(targets.size(), 8u);
  EXPECT_EQ(EmitTargetName(targets[0]), "nccl");
  EXPECT_EQ(EmitTargetName(targets[4]), "deepspeed");
  for (const char* text : {"", "nemo", "nccl,", "nccl;megatron"}) {
    ASSERT_FALSE(ParseEmitTargets(text)) << text;
    EXPECT_THAT(ParseEmitTargets(text).error().message(), HasSubstr("expected some of torchrun, megatron, torchtitan"));
  }
  EXPECT_THAT(ParseEmitTargets("nccl,nccl").error().message(), HasSubstr("named twice"));
}

}  // namespace
}  // namespace weft::formats

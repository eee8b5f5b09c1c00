#include "formats/emit/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "planner/parallelism/space.h"
#include "planner/workload/model_presets.h"

namespace weft::formats {
namespace {

using planner::ClusterSpec;
using planner::JobSpec;
using planner::Strategy;
using testing::HasSubstr;
using testing::Not;

// Options of the targets by their documentation: torchrun --help (PyTorch 2), Megatron-LM's training/arguments.py and the
// configuration classes that it makes options of (d98e8a64), torchtitan 0.2's config/job_config.py, DeepSpeed's
// 'Configuration JSON' page, NCCL's 'Environment Variables' page.
const std::set<std::string> kTorchrun = {"nnodes", "nproc-per-node", "node-rank", "rdzv-id", "rdzv-backend",
                                         "rdzv-endpoint", "rdzv-conf", "max-restarts", "master-addr", "master-port"};
const std::set<std::string> kMegatron = {
    "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "group-query-attention", "num-query-groups",
    "kv-channels", "qk-layernorm", "seq-length", "max-position-embeddings", "position-embedding-type", "normalization",
    "vocab-size", "swiglu", "untie-embeddings-and-output-weights", "disable-bias-linear", "add-qkv-bias",
    "attention-dropout", "hidden-dropout", "multi-latent-attention", "q-lora-rank", "kv-lora-rank", "qk-head-dim",
    "qk-pos-emb-head-dim", "v-head-dim", "num-experts", "moe-router-topk", "moe-ffn-hidden-size", "moe-layer-freq",
    "moe-shared-expert-intermediate-size", "moe-shared-expert-gate", "moe-token-dispatcher-type",
    "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "expert-model-parallel-size",
    "expert-tensor-parallel-size", "sequence-parallel", "use-tp-pp-dp-mapping", "cp-comm-type",
    "num-layers-per-virtual-pipeline-stage", "pipeline-model-parallel-layout", "micro-batch-size", "global-batch-size",
    "use-distributed-optimizer", "use-megatron-fsdp", "data-parallel-sharding-strategy",
    "num-distributed-optimizer-instances", "overlap-grad-reduce", "overlap-param-gather", "ddp-bucket-size",
    "recompute-granularity", "recompute-method", "recompute-num-layers", "recompute-modules", "bf16", "fp16",
    "fp8-format", "fp4-format"};
const std::set<std::string> kTorchtitan = {
    "name", "flavor", "converters", "local_batch_size", "global_batch_size", "seq_len", "mixed_precision_param",
    "data_parallel_replicate_degree", "data_parallel_shard_degree", "fsdp_reshard_after_forward",
    "tensor_parallel_degree", "pipeline_parallel_degree", "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size", "pipeline_parallel_layers_per_stage",
    "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers", "context_parallel_degree",
    "context_parallel_rotate_method", "expert_parallel_degree", "expert_tensor_parallel_degree", "mode",
    "selective_ac_option"};
const std::set<std::string> kDeepSpeed = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16", "fp16", "enabled",
    "zero_optimization", "stage", "overlap_comm", "reduce_scatter", "contiguous_gradients", "reduce_bucket_size",
    "allgather_bucket_size", "stage3_prefetch_bucket_size", "tensor_parallel", "autotp_size", "sequence_parallel_size",
    "expert_parallel", "autoep_size", "activation_checkpointing", "number_checkpoints"};
const std::set<std::string> kNccl = {"NCCL_NET_PLUGIN", "NCCL_CROSS_NIC", "NCCL_PXN_DISABLE"};

/// All first groups of `pattern` in the lines of `text` that are no comments.
std::set<std::string> Options(const std::string& text, const char* pattern) {
  std::set<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(line.begin(), line.end(), regex), end; at != end; ++at) found.insert((*at)[1]);
  }
  return found;
}

void ExpectSubset(const std::set<std::string>& options, const std::set<std::string>& known) {
  EXPECT_FALSE(options.empty());
  for (const std::string& option : options) EXPECT_TRUE(known.contains(option)) << option;
}

JobSpec Job(const char* preset, int64_t batch, int64_t sequence) {
  return {.name = "job", .model = planner::FindModelPreset(preset).value(), .global_batch = batch, .sequence = sequence};
}

ClusterSpec Cluster(const char* preset, int64_t nodes) { return planner::FindClusterPreset(preset, nodes).value(); }

std::string Text(EmitTarget target, const JobSpec& job, const ClusterSpec& cluster, const Strategy& strategy) {
  const Result<std::string> text = Emit(target, job, cluster, strategy);
  EXPECT_TRUE(text) << text.error().message();
  return text.value_or("");
}

TEST(Emit, MegatronOfAMixtureWithLatentAttention) {
  const Strategy s{.dp = 16, .tp = 2, .pp = 8, .ep = 16, .vpp = 2, .zero_stage = 1, .shard_group = 8,
                   .recompute = planner::Recompute::kFull, .recompute_layers = 3, .sequence_parallel = true,
                   .schedule = planner::ScheduleKind::kInterleaved};
  JobSpec job = Job("deepseek-v3", 1024, 4096);
  job.precision = planner::Precision::kFp8;
  const std::string text = Text(EmitTarget::kMegatron, job, Cluster("dgx-h100", 32), s);
  ExpectSubset(Options(text, R"(^--([a-z0-9-]+))"), kMegatron);
  for (const char* line : {"--multi-latent-attention\n", "--kv-lora-rank 512\n", "--num-experts 256\n",
                           "--moe-layer-freq \"([0]*3+[1]*58)\"\n", "--moe-shared-expert-intermediate-size 2048\n",
                           "--tensor-model-parallel-size 2\n", "--expert-model-parallel-size 16\n",
                           "--num-distributed-optimizer-instances 2\n", "--recompute-method block\n",
                           "--recompute-num-layers 3\n", "--bf16\n--fp8-format hybrid\n", "--disable-bias-linear\n",
                           "--sequence-parallel\n", "--ddp-bucket-size 6553600\n", "--attention-dropout 0.0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // 61 layers over 16 chunks: three on chunk 0, four on the next thirteen, three on the last two.
  EXPECT_THAT(text, HasSubstr("--pipeline-model-parallel-layout \"Et*3|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|"
                              "t*3|t*3L\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("--add-qkv-bias")));
}

TEST(Emit, MegatronOfADenseModel) {
  const Strategy s{.dp = 8, .tp = 8, .pp = 12, .vpp = 2, .recompute = planner::Recompute::kFull,
                   .schedule = planner::ScheduleKind::kInterleaved};
  const std::string text = Text(EmitTarget::kMegatron, Job("gpt3-175b", 1536, 2048), Cluster("dgx-a100", 96), s);
  ExpectSubset(Options(text, R"(^--([a-z0-9-]+))"), kMegatron);
  for (const char* line : {"--num-layers-per-virtual-pipeline-stage 4\n", "--recompute-method uniform\n",
                           "--global-batch-size 1536\n", "--position-embedding-type learned_absolute\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  for (const char* absent : {"layout", "use-distributed-optimizer", "swiglu", "dropout", "disable-bias-linear"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
}

TEST(Emit, MegatronShardsByItsOwnFsdp) {
  const Strategy s{.dp = 16, .cp = 2, .zero_stage = 3, .context_mode = planner::ContextMode::kAllGather};
  const std::string text = Text(EmitTarget::kMegatron, Job("llama3-8b", 32, 8192), Cluster("dgx-h100", 4), s);
  ExpectSubset(Options(text, R"(^--([a-z0-9-]+))"), kMegatron);
  EXPECT_THAT(text, HasSubstr("--use-megatron-fsdp\n--data-parallel-sharding-strategy optim_grads_params\n"));
  EXPECT_THAT(text, HasSubstr("--cp-comm-type allgather\n"));
  EXPECT_THAT(text, HasSubstr("--num-query-groups 8\n"));
}

TEST(Emit, TorchtitanOfAHybridShardedModel) {
  const Strategy s{.dp = 32, .tp = 8, .cp = 2, .zero_stage = 3, .shard_group = 16,
                   .recompute = planner::Recompute::kSelective, .sequence_parallel = true};
  const std::string text = Text(EmitTarget::kTorchtitan, Job("llama3-70b", 64, 8192), Cluster("dgx-h100", 64), s);
  ExpectSubset(Options(text, R"(^([a-z_0-9]+) = )"), kTorchtitan);
  // 16 ranks share one copy, two of them by cp: 8 shards times 4 replicas.
  for (const char* line : {"flavor = \"70B\"\n", "data_parallel_replicate_degree = 4\n", "data_parallel_shard_degree = 8\n",
                           "fsdp_reshard_after_forward = \"always\"\n", "tensor_parallel_degree = 8\n", "seq_len = 8192\n",
                           "local_batch_size = 1\n", "context_parallel_rotate_method = \"alltoall\"\n",
                           "mode = \"selective\"\nselective_ac_option = \"op\"\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// 3 of the 8 layers of a stage become every second.
TEST(Emit, TorchtitanRecomputesEveryFewLayers) {
  const Strategy s{.dp = 4, .tp = 4, .pp = 4, .recompute = planner::Recompute::kFull, .recompute_layers = 3};
  const std::string text = Text(EmitTarget::kTorchtitan, Job("llama3-8b", 64, 8192), Cluster("dgx-h100", 8), s);
  ExpectSubset(Options(text, R"(^([a-z_0-9]+) = )"), kTorchtitan);
  EXPECT_THAT(text, HasSubstr("mode = \"selective\"\nselective_ac_option = \"2\"\n"));
  EXPECT_THAT(text, HasSubstr("pipeline_parallel_schedule = \"1F1B\"\npipeline_parallel_microbatch_size = 1\n"
                              "pipeline_parallel_layers_per_stage = 8\n"));
}

// 126 layers, and embedding and head for one each: 128 over 16 stages of two chunks.
TEST(Emit, TorchtitanOfAPipeline) {
  const Strategy s{.dp = 8, .tp = 8, .pp = 16, .vpp = 2, .zero_stage = 2, .sequence_parallel = true,
                   .schedule = planner::ScheduleKind::kInterleaved};
  const std::string text = Text(EmitTarget::kTorchtitan, Job("llama3-405b", 512, 8192), Cluster("dgx-h100", 128), s);
  ExpectSubset(Options(text, R"(^([a-z_0-9]+) = )"), kTorchtitan);
  for (const char* line : {"pipeline_parallel_schedule = \"Interleaved1F1B\"\n", "pipeline_parallel_layers_per_stage = 4\n",
                           "pipeline_parallel_first_stage_less_layers = 1\n", "local_batch_size = 64\n",
                           "fsdp_reshard_after_forward = \"never\"\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Emit, DeepSpeedKeepsItsBatchInvariant) {
  const Strategy s{.dp = 16, .tp = 2, .micro_batch = 4, .zero_stage = 3, .recompute = planner::Recompute::kFull,
                   .bucket_bytes = Bytes(100 << 20)};
  const std::string text = Text(EmitTarget::kDeepSpeed, Job("llama3-8b", 512, 8192), Cluster("dgx-h100", 4), s);
  ExpectSubset(Options(text, R"RE("([A-Za-z0-9_]+)":)RE"), kDeepSpeed);
  const nlohmann::json config = nlohmann::json::parse(text);
  EXPECT_EQ(config["train_batch_size"], 512);
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"].get<int64_t>() *
                config["gradient_accumulation_steps"].get<int64_t>() * 16, 512);
  EXPECT_EQ(config["zero_optimization"]["stage"], 3);
  EXPECT_EQ(config["zero_optimization"]["reduce_bucket_size"], 50 << 20);
  EXPECT_EQ(config["tensor_parallel"]["autotp_size"], 2);
  EXPECT_EQ(config["activation_checkpointing"]["number_checkpoints"], 32);
  EXPECT_TRUE(config["bf16"]["enabled"]);
}

TEST(Emit, DeepSpeedOfAMixture) {
  const Strategy s{.dp = 16, .cp = 2, .ep = 8, .zero_stage = 1, .context_mode = planner::ContextMode::kUlysses};
  JobSpec job = Job("mixtral-8x7b", 32, 4096);
  job.precision = planner::Precision::kFp16;
  const std::string text = Text(EmitTarget::kDeepSpeed, job, Cluster("dgx-a100", 4), s);
  ExpectSubset(Options(text, R"RE("([A-Za-z0-9_]+)":)RE"), kDeepSpeed);
  const nlohmann::json config = nlohmann::json::parse(text);
  EXPECT_EQ(config["expert_parallel"]["autoep_size"], 8);
  EXPECT_EQ(config["sequence_parallel_size"], 2);
  EXPECT_TRUE(config["fp16"]["enabled"]);
}

TEST(Emit, TorchrunStartsOneProcessPerGpuOfEveryHost) {
  const JobSpec job = Job("llama3-8b", 144, 8192);
  const std::string dgx = Text(EmitTarget::kTorchrun, job, Cluster("dgx-h100", 4), Strategy{.dp = 16});
  ExpectSubset(Options(dgx, R"(--([a-z-]+))"), kTorchrun);
  EXPECT_THAT(dgx, HasSubstr("torchrun --nnodes=2 --nproc-per-node=8 "));
  EXPECT_THAT(dgx, HasSubstr("# weft plan: llama3-8b on dgx-h100, 16 GPUs: dp=16 tp=1 pp=1"));
  EXPECT_THAT(Text(EmitTarget::kTorchrun, job, Cluster("gb200-nvl72", 1), Strategy{.dp = 72}),
              HasSubstr("torchrun --nnodes=18 --nproc-per-node=4 "));
  EXPECT_THAT(Text(EmitTarget::kTorchrun, job, Cluster("dgx-h100", 1), Strategy{.dp = 3}),
              HasSubstr("torchrun --nnodes=1 --nproc-per-node=3 "));
}

TEST(Emit, NcclNeedsThePluginOnlyAcrossNodes) {
  const JobSpec job = Job("mixtral-8x7b", 144, 8192);
  const std::string one = Text(EmitTarget::kNccl, job, Cluster("dgx-h100", 1), Strategy{.dp = 8});
  EXPECT_THAT(one, HasSubstr("\nNCCL_NET_PLUGIN=none\n"));
  const std::string two = Text(EmitTarget::kNccl, job, Cluster("dgx-h100", 2), Strategy{.dp = 2, .tp = 8, .ep = 8, .etp = 2});
  ExpectSubset(Options(two, R"(^([A-Z_]+)=)"), kNccl);
  EXPECT_THAT(two, HasSubstr("\nNCCL_NET_PLUGIN=weft\n"));
  EXPECT_THAT(two, HasSubstr("\nNCCL_CROSS_NIC=0\n"));
  EXPECT_THAT(two, HasSubstr("\nNCCL_PXN_DISABLE=0\n"));
  EXPECT_THAT(Text(EmitTarget::kNccl, job, Cluster("dgx-h100", 2), Strategy{.tp = 16}), Not(HasSubstr("NCCL_CROSS_NIC")));
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
      {EmitTarget::kTorchtitan, {.dp = 2, .zero_stage = 1}, "torchtitan: zero_stage=1, expected 0"},
      {EmitTarget::kTorchtitan, {.pp = 2, .schedule = ScheduleKind::kZbH1}, "torchtitan: schedule zb-h1, expected gpipe"},
      {EmitTarget::kTorchtitan, {.dp = 6, .cp = 2, .zero_stage = 3, .shard_group = 3},
       "torchtitan: zero_stage=3 shard_group=3 with cp=2, expected shards over a multiple of cp"},
      {EmitTarget::kDeepSpeed, {.cp = 2}, "deepspeed: context mode ring, expected ulysses"},
      {EmitTarget::kDeepSpeed, {.pp = 2, .zero_stage = 2}, "deepspeed: zero_stage=2 with pp=2, expected 0 or 1"},
      {EmitTarget::kDeepSpeed, {.dp = 4, .zero_stage = 3, .shard_group = 2}, "deepspeed: shard_group=2, expected shards over"},
      {EmitTarget::kTorchrun, {.dp = 12}, "torchrun: 12 GPUs on hosts of 8, expected whole hosts"},
  };
  for (const Refusal& refusal : refusals) {
    const auto text = Emit(refusal.target, Job("llama3-8b", 64, 8192), Cluster("dgx-h100", 2), refusal.strategy);
    ASSERT_FALSE(text) << refusal.message;
    EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(text.error().message(), HasSubstr(refusal.message));
  }
}

/// Every combination of some values of what frameworks differ in.
std::vector<Strategy> Mixed() {
  std::vector<Strategy> all;
  for (const planner::ScheduleKind schedule : planner::kAllSchedules) {
    for (int64_t zero = 0; zero <= 3; ++zero) {
      for (const int64_t cp : {1, 4}) {
        for (const int64_t group : {0, 2, 8}) {
          for (const planner::ContextMode mode :
               {planner::ContextMode::kRing, planner::ContextMode::kAllGather, planner::ContextMode::kUlysses}) {
            for (const int64_t layers : {-1, 0, 3}) {
              Strategy s{.dp = 8, .tp = 2, .pp = 4, .cp = cp, .zero_stage = zero, .shard_group = group,
                         .recompute = planner::Recompute::kFull, .recompute_layers = layers, .context_mode = mode,
                         .schedule = schedule};
              s.vpp = schedule == planner::ScheduleKind::kInterleaved || schedule == planner::ScheduleKind::kZbV ? 2 : 1;
              all.push_back(s);
              s.pp = 1;
              if (s.vpp == 1) all.push_back(s);
            }
          }
        }
      }
    }
  }
  return all;
}

// What the search takes a framework to run, its writer must be able to say.
// A plan per operator as FSDP2's modules; what FSDP2 lacks is said, and who has no such choice refuses.
TEST(Emit, ShardingPerOperatorIsListedByModule) {
  const Strategy s{.dp = 4, .tp = 2, .pp = 2, .zero_stage = 3, .sharding = planner::Sharding::kOperator};
  const planner::OperatorDecision sharded{.slices = 1, .sharded = 1, .kept = false}, replicated{}, kept{.kept = true},
      half{.slices = 4, .sharded = 2, .kept = false};
  const std::vector<planner::StageOperators> operators = {
      {.runs = {{10, false, sharded, kept}, {6, false, replicated, half}}, .embedding = true},
      {.runs = {{16, false, kept, kept}}, .head = true}};
  const JobSpec job = Job("llama3-8b", 64, 4096);
  for (const EmitTarget target : {EmitTarget::kTorchtitan, EmitTarget::kTorchrun}) {
    const std::string text = Emit(target, job, Cluster("dgx-h100", 2), s, operators).value();
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
  for (const EmitTarget target : {EmitTarget::kMegatron, EmitTarget::kDeepSpeed}) {
    const Result<std::string> text = Emit(target, job, Cluster("dgx-h100", 2), s, operators);
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(text.error().message(), HasSubstr("sharding osdp, expected uniform"));
  }
}

TEST(Emit, WhatRunsCanBeWritten) {
  const std::pair<planner::Framework, EmitTarget> pairs[] = {{planner::Framework::kMegatron, EmitTarget::kMegatron},
                                                             {planner::Framework::kTorchtitan, EmitTarget::kTorchtitan},
                                                             {planner::Framework::kDeepspeed, EmitTarget::kDeepSpeed}};
  const JobSpec job = Job("llama3-8b", 64, 8192);
  for (const auto& [framework, target] : pairs) {
    int runs = 0;
    for (const Strategy& s : Mixed()) {
      if (!planner::Runs(framework, s)) continue;
      ++runs;
      const Result<std::string> text = Emit(target, job, Cluster("dgx-h100", 32), s);
      EXPECT_TRUE(text) << text.error().message();
    }
    EXPECT_GT(runs, 10);
  }
}

TEST(Emit, TargetsAreReadInOrder) {
  const auto targets = ParseEmitTargets("nccl,torchrun,megatron,torchtitan,deepspeed").value();
  ASSERT_EQ(targets.size(), 5u);
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

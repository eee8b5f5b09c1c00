// Megatron-LM's arguments. Line by line, and against the options of both releases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/emit/emit_testing.h"
#include "formats/hf_config.h"
#include "planner/planner.h"

namespace weft::formats {
namespace {

using planner::Framework;
using planner::JobSpec;
using planner::Precision;
using planner::RankOrder;
using planner::Recompute;
using planner::ScheduleKind;
using planner::Strategy;
using testing::HasSubstr;
using testing::Not;

// Of the options that the parsers of tags core_v0.15.3 and core_v0.19.0 know (megatron/training/arguments.py and the
// configuration classes that it makes options of), those that are written here: in both releases, and in the newer alone.
const std::set<std::string> kInBoth = {
    "add-qkv-bias", "attention-dropout", "bf16", "context-parallel-size", "cp-comm-type",
    "cross-entropy-loss-fusion", "ddp-bucket-size", "disable-bias-linear", "expert-model-parallel-size",
    "expert-tensor-parallel-size", "ffn-hidden-size", "fp16", "fp4-format", "fp4-recipe", "fp8-format", "fp8-recipe",
    "global-batch-size", "group-query-attention", "hidden-dropout", "hidden-size", "init-method-std", "kv-channels",
    "kv-lora-rank", "max-position-embeddings", "micro-batch-size", "moe-aux-loss-coeff", "moe-ffn-hidden-size",
    "moe-grouped-gemm", "moe-input-jitter-eps", "moe-layer-freq", "moe-router-enable-expert-bias",
    "moe-router-group-topk", "moe-router-load-balancing-type", "moe-router-num-groups", "moe-router-pre-softmax",
    "moe-router-score-function", "moe-router-topk", "moe-router-topk-scaling-factor",
    "moe-shared-expert-intermediate-size", "moe-token-dispatcher-type", "mscale", "mscale-all-dim",
    "multi-latent-attention", "no-bias-gelu-fusion", "no-rope-fusion", "norm-epsilon", "normalization",
    "num-attention-heads", "num-distributed-optimizer-instances", "num-experts", "num-layers",
    "num-layers-per-virtual-pipeline-stage", "num-query-groups", "overlap-grad-reduce", "overlap-param-gather",
    "pipeline-model-parallel-layout", "pipeline-model-parallel-size", "position-embedding-type", "q-lora-rank",
    "qk-head-dim", "qk-layernorm", "qk-pos-emb-head-dim", "recompute-granularity", "recompute-method",
    "recompute-modules", "recompute-num-layers", "rope-type", "rotary-base", "rotary-interleaved", "rotary-percent",
    "rotary-scaling-factor", "rotary-seq-len-interpolation-factor", "seq-length", "sequence-parallel",
    "squared-relu", "swiglu", "tensor-model-parallel-size", "untie-embeddings-and-output-weights",
    "use-distributed-optimizer", "use-rope-scaling", "use-tp-pp-dp-mapping", "v-head-dim", "vocab-size",
    "window-attn-skip-freq", "window-size"};
const std::set<std::string> kNewer = {"moe-shared-expert-gate", "yarn-beta-fast", "yarn-beta-slow", "yarn-original-max-position-embeddings"};

std::set<std::string> Known(Framework framework) {
  std::set<std::string> known = kInBoth;
  if (framework == Framework::kMegatron) known.insert(kNewer.begin(), kNewer.end());
  return known;
}

/// The text of one release, every option of which it knows.
std::string Text(const JobSpec& job, const planner::ClusterSpec& cluster, const Strategy& s,
                 Framework framework = Framework::kMegatron) {
  const std::string text = EmitText(EmitTarget::kMegatron, job, cluster, s, framework);
  ExpectSubset(OptionsOf(text, R"(^--([a-z0-9-]+))"), Known(framework));
  return text;
}

planner::ModelSpec Model(const char* json) { return ParseHfConfig(json, "config.json").value(); }

// The keys that matter of Qwen/Qwen3-30B-A3B's config.json.
constexpr const char* kQwen3Moe = R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
  "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
  "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "num_experts": 128,
  "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "router_aux_loss_coef": 0.001, "output_router_logits": true, "tie_word_embeddings": false, "hidden_act": "silu"})";

constexpr const char* kLlama31 = R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
  "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false,
  "hidden_act": "silu", "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(EmitMegatron, AMixtureWithLatentAttention) {
  const Strategy s{.dp = 16, .tp = 2, .pp = 8, .ep = 16, .vpp = 2, .zero_stage = 1, .shard_group = 8,
                   .recompute = Recompute::kFull, .recompute_layers = 4, .sequence_parallel = true,
                   .schedule = ScheduleKind::kInterleaved};
  JobSpec job = EmitJob("deepseek-v3", 1024, 4096);
  job.precision = Precision::kFp8;
  const std::string text = Text(job, EmitCluster("dgx-h100", 32), s);
  for (const char* line : {"--multi-latent-attention\n", "--kv-lora-rank 512\n", "--num-experts 256\n",
                           "--moe-layer-freq \"([0]*3+[1]*58)\"\n", "--moe-shared-expert-intermediate-size 2048\n",
                           "--tensor-model-parallel-size 2\n", "--expert-model-parallel-size 16\n",
                           "--expert-tensor-parallel-size 1\n", "--moe-grouped-gemm\n",
                           "--num-distributed-optimizer-instances 2\n", "--recompute-method block\n",
                           // Of each of two chunks two.
                           "--recompute-num-layers 2\n",
                           "--bf16\n--fp8-format hybrid\n--fp8-recipe tensorwise\n", "--disable-bias-linear\n",
                           "--sequence-parallel\n", "--attention-dropout 0\n", "--hidden-dropout 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // 61 layers over 16 chunks: three on chunk 0, four on the next thirteen, three on the last two.
  EXPECT_THAT(text, HasSubstr("--pipeline-model-parallel-layout \"Et*3|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|"
                              "t*3|t*3L\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("--add-qkv-bias")));
  EXPECT_THAT(text, Not(HasSubstr("--num-layers-per-virtual")));
}

// deepseek-ai/DeepSeek-V3's config.json: sigmoid scores with a bias, 4 of 8 groups, weights times 2.5, a loss per sequence;
// yarn by 40 with mscale 1; norms of the latents with epsilon 1e-6.
TEST(EmitMegatron, NumericsOfDeepSeekV3) {
  const std::string text = Text(EmitJob("deepseek-v3", 1024, 4096), EmitCluster("dgx-h100", 32),
                                {.dp = 16, .tp = 2, .pp = 8, .ep = 16, .zero_stage = 1, .sequence_parallel = true});
  for (const char* line : {"--moe-router-score-function sigmoid\n", "--moe-router-num-groups 8\n",
                           "--moe-router-group-topk 4\n", "--moe-router-topk-scaling-factor 2.5\n",
                           "--moe-router-enable-expert-bias\n", "--moe-router-load-balancing-type seq_aux_loss\n",
                           "--moe-aux-loss-coeff 0.001\n", "--qk-layernorm\n", "--norm-epsilon 1e-06\n",
                           "--rotary-base 10000\n", "--rotary-scaling-factor 40\n", "--mscale 1\n", "--mscale-all-dim 1\n",
                           "--normalization RMSNorm\n", "--vocab-size 129280\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("pre-softmax")));
  EXPECT_THAT(text, Not(HasSubstr("--rotary-interleaved"))) << "latent attention has pairs of its own";
}

// Mixtral: the softmax of the chosen two, theta 1e6 (an integer: the option takes no other), a loss of 0.02.
TEST(EmitMegatron, NumericsOfMixtral) {
  const std::string text = Text(EmitJob("mixtral-8x7b", 64, 4096), EmitCluster("dgx-h100", 8),
                                {.dp = 64, .ep = 8, .zero_stage = 1});
  for (const char* line : {"--moe-router-score-function softmax\n", "--moe-router-topk 2\n", "--rotary-base 1000000\n",
                           "--moe-router-load-balancing-type aux_loss\n", "--moe-aux-loss-coeff 0.02\n",
                           "--moe-grouped-gemm\n", "--num-query-groups 8\n", "--norm-epsilon 1e-05\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  for (const char* absent : {"pre-softmax", "router-num-groups", "topk-scaling-factor", "expert-bias", "moe-layer-freq"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
}

// Where the chosen scores are not made to sum to one, the softmax is over all experts, before the choice.
TEST(EmitMegatron, NumericsOfQwen3Moe) {
  const Strategy s{.dp = 64, .ep = 8, .zero_stage = 1};
  const std::string text = Text(EmitJob(Model(kQwen3Moe), 64, 4096), EmitCluster("dgx-h100", 8), s);
  for (const char* line : {"--num-experts 128\n", "--moe-router-topk 8\n", "--moe-ffn-hidden-size 768\n",
                           "--moe-router-score-function softmax\n", "--moe-aux-loss-coeff 0.001\n", "--qk-layernorm\n",
                           "--rotary-base 1000000\n", "--norm-epsilon 1e-06\n", "--kv-channels 128\n",
                           "--num-query-groups 4\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("pre-softmax")));
  const planner::ModelSpec apart = Model(Replaced(kQwen3Moe, "\"norm_topk_prob\": true", "\"norm_topk_prob\": false").c_str());
  EXPECT_THAT(Text(EmitJob(apart, 64, 4096), EmitCluster("dgx-h100", 8), s), HasSubstr("--moe-router-pre-softmax\n"));
}

// Llama 3.1's scaling is what --use-rope-scaling means; another factor never reaches the model in either release.
TEST(EmitMegatron, RotationsAreLlama31sOrRefused) {
  const Strategy s{.dp = 8, .zero_stage = 1};
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 1);
  const std::string scaled = Text(EmitJob(Model(kLlama31), 64, 8192), cluster, s);
  EXPECT_THAT(scaled, HasSubstr("--position-embedding-type rope\n--rotary-base 500000\n--use-rope-scaling\n"));
  EXPECT_THAT(scaled, HasSubstr("--max-position-embeddings 131072\n"));
  EXPECT_THAT(Text(EmitJob("llama3-8b", 64, 8192), cluster, s), Not(HasSubstr("--use-rope-scaling")));
  const planner::ModelSpec other = Model(Replaced(kLlama31, "\"factor\": 8.0", "\"factor\": 32.0").c_str());
  const auto refused = TryEmit(EmitTarget::kMegatron, EmitJob(other, 64, 8192), cluster, s);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("its rope scaling: of llama3's only factor 8 over 8192 positions reaches the model"));
}

// A window of 4096 tokens: 4095 to the left beside the token itself, none to the right.
TEST(EmitMegatron, ASlidingWindowIsSaid) {
  const planner::ModelSpec mistral = Model(R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
      "max_position_embeddings": 32768, "sliding_window": 4096, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "hidden_act": "silu"})");
  EXPECT_THAT(Text(EmitJob(mistral, 64, 8192), EmitCluster("dgx-h100", 1), {.dp = 8, .zero_stage = 1}),
              HasSubstr("--window-size 4095,0\n"));
  EXPECT_THAT(Text(EmitJob("llama3-8b", 64, 8192), EmitCluster("dgx-h100", 1), {.dp = 8, .zero_stage = 1}),
              Not(HasSubstr("window")));
}

TEST(EmitMegatron, ADenseModel) {
  const Strategy s{.dp = 8, .tp = 8, .pp = 12, .vpp = 2, .recompute = Recompute::kFull, .schedule = ScheduleKind::kInterleaved};
  const std::string text = Text(EmitJob("gpt3-175b", 1536, 2048), EmitCluster("dgx-a100", 96), s);
  for (const char* line : {"--num-layers-per-virtual-pipeline-stage 4\n",
                           "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n",
                           "--global-batch-size 1536\n", "--position-embedding-type learned_absolute\n",
                           "--attention-dropout 0.1\n", "--hidden-dropout 0.1\n", "--normalization LayerNorm\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  for (const char* absent : {"layout", "use-distributed-optimizer", "swiglu", "disable-bias-linear", "rotary"}) {
    EXPECT_THAT(text, Not(HasSubstr(absent)));
  }
}

// arguments.py's default is max(40e6, 1e6 · dp · cp) parameters of 4 bytes: for 64 replicas 64e6 of them.
TEST(EmitMegatron, BucketsAreSaidOnlyWhereAskedFor) {
  Strategy s{.dp = 64, .zero_stage = 1, .bucket_bytes = Bytes(256'000'000)};
  const JobSpec job = EmitJob("llama3-8b", 64, 8192);
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 8), s), Not(HasSubstr("ddp-bucket-size")));
  s.bucket_bytes = Bytes(100'000'000);
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 8), s), HasSubstr("--ddp-bucket-size 25000000\n"));
}

// What --recompute-modules frees is the experts' norm and activation, and what latents are projected up to.
TEST(EmitMegatron, SelectiveRecomputationNamesItsModules) {
  const Strategy s{.dp = 64, .ep = 8, .zero_stage = 1, .recompute = Recompute::kSelective};
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 8);
  EXPECT_THAT(Text(EmitJob("mixtral-8x7b", 64, 4096), cluster, s),
              HasSubstr("--recompute-granularity selective\n--recompute-modules layernorm moe_act\n"));
  EXPECT_THAT(Text(EmitJob("deepseek-v3", 64, 4096), cluster, s),
              HasSubstr("--recompute-granularity selective\n--recompute-modules layernorm moe_act mla_up_proj\n"));
  const auto dense = TryEmit(EmitTarget::kMegatron, EmitJob("llama3-8b", 64, 4096), cluster,
                             {.dp = 64, .zero_stage = 1, .recompute = Recompute::kSelective});
  ASSERT_FALSE(dense);
  EXPECT_THAT(dense.error().message(), HasSubstr("megatron: recompute selective of a dense model, expected none or full"));
}

// The experts' grid has dp · tp · cp / (ep · etp) replicas. With pipeline ranks inside the replicas Megatron wants as many
// as attention has, dp: etp · ep = tp · cp (parallel_state.py, initialize_model_parallel).
TEST(EmitMegatron, PipelineInsideReplicasOnlyWhereBothGridsAgree) {
  const JobSpec job = EmitJob("mixtral-8x7b", 64, 4096);
  int written = 0, refused = 0;
  for (const int64_t tp : {1, 2, 4}) {
    for (const int64_t cp : {1, 2}) {
      for (const int64_t ep : {1, 2, 4, 8}) {
        for (const int64_t etp : std::set<int64_t>{1, tp}) {
          const Strategy s{.dp = 64 / tp / cp / 2, .tp = tp, .pp = 2, .cp = cp, .ep = ep, .etp = etp, .zero_stage = 1,
                           .sequence_parallel = tp > 1, .rank_order = RankOrder::kTpCpPpDp};
          const auto text = TryEmit(EmitTarget::kMegatron, job, EmitCluster("dgx-h100", 8), s);
          EXPECT_EQ(text.has_value(), etp * ep == tp * cp) << tp << " " << cp << " " << ep << " " << etp;
          EXPECT_THAT(text.value_or("--use-tp-pp-dp-mapping\n"), HasSubstr("--use-tp-pp-dp-mapping\n"));
          ++(text ? written : refused);
        }
      }
    }
  }
  EXPECT_GT(written, 3);
  EXPECT_GT(refused, 10);
}

TEST(EmitMegatron, WhatASearchChoosesForAMixtureAgreesWithBothGrids) {
  const JobSpec job = EmitJob("mixtral-8x7b", 512, 4096);
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 8);
  const auto answer = planner::Plan(job, cluster, {.top = 200, .fix = planner::ParseFixed("rank_order=tp-cp-pp-dp,pp=2").value(),
                                                   .framework = Framework::kMegatron}).value();
  ASSERT_GT(answer.plans.size(), 10U);
  for (const planner::JobPlan& plan : answer.plans) {
    const Strategy& s = plan.strategy;
    EXPECT_EQ(s.ep * s.etp, s.tp * s.cp) << planner::DescribeStrategy(s);
  }
  const auto best = planner::Plan(job, cluster, {.framework = Framework::kMegatron}).value().plans.at(0).strategy;
  EXPECT_TRUE(best.rank_order == RankOrder::kTpCpEpDpPp || best.pp == 1 || best.ep * best.etp == best.tp * best.cp);
}

TEST(EmitMegatron, ContextModesAreTransformerEnginesWords) {
  const std::pair<planner::ContextMode, const char*> words[] = {{planner::ContextMode::kRing, "p2p"},
                                                                {planner::ContextMode::kAllGather, "all_gather"},
                                                                {planner::ContextMode::kUlysses, "a2a"}};
  for (const auto& [mode, word] : words) {
    EXPECT_THAT(Text(EmitJob("llama3-8b", 32, 8192), EmitCluster("dgx-h100", 4),
                     {.dp = 16, .cp = 2, .zero_stage = 1, .context_mode = mode}),
                HasSubstr(std::string("--cp-comm-type ") + word + "\n"));
  }
}

// Blackwell's fp8 recipe is mxfp8; the older release's null tokenizer adds a token of its own, and has no gate on shared
// experts.
TEST(EmitMegatron, ReleasesAndDevicesDiffer) {
  const Strategy s{.dp = 8, .zero_stage = 1};
  JobSpec job = EmitJob("llama3-8b", 64, 8192);
  job.precision = Precision::kFp8;
  EXPECT_THAT(Text(job, EmitCluster("dgx-b200", 1), s), HasSubstr("--fp8-recipe mxfp8\n"));
  job.precision = Precision::kFp4;
  EXPECT_THAT(Text(job, EmitCluster("dgx-b200", 1), s), HasSubstr("--bf16\n--fp4-format e2m1\n--fp4-recipe nvfp4\n"));
  job.precision = Precision::kBf16;
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 1), s), HasSubstr("--vocab-size 128256\n"));
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 1), s, Framework::kMegatron015), HasSubstr("--vocab-size 128255\n"));
  EXPECT_THAT(Text(EmitJob("mixtral-8x7b", 64, 4096), EmitCluster("dgx-h100", 1), {.dp = 8, .ep = 8, .zero_stage = 1},
                   Framework::kMegatron015),
              HasSubstr("--moe-grouped-gemm\n"));
}

}  // namespace
}  // namespace weft::formats

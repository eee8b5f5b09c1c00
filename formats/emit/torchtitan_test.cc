// torchtitan's TOML and the module that registers the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/emit/emit_testing.h"
#include "formats/emit/writers.h"

namespace weft::formats {
namespace {

using planner::ContextMode;
using planner::Framework;
using planner::JobSpec;
using planner::Recompute;
using planner::ScheduleKind;
using planner::Strategy;
using testing::HasSubstr;
using testing::Not;

// torchtitan/config/job_config.py of v0.2.0 and v0.2.2.
const std::set<std::string> kKeys = {
    "name", "flavor", "converters", "custom_import", "filter_fqns", "local_batch_size", "global_batch_size", "seq_len",
    "mixed_precision_param", "enable", "data_parallel_replicate_degree", "data_parallel_shard_degree",
    "fsdp_reshard_after_forward", "tensor_parallel_degree", "pipeline_parallel_degree", "pipeline_parallel_schedule",
    "pipeline_parallel_microbatch_size", "module_fqns_per_model_part", "context_parallel_degree",
    "context_parallel_rotate_method", "expert_parallel_degree", "expert_tensor_parallel_degree", "mode",
    "selective_ac_option"};

std::string Text(const JobSpec& job, const planner::ClusterSpec& cluster, const Strategy& s,
                 Framework framework = Framework::kTorchtitan) {
  const std::string text = EmitText(EmitTarget::kTorchtitan, job, cluster, s, framework);
  ExpectSubset(OptionsOf(text, R"(^([a-z_0-9]+) = )"), kKeys);
  return text;
}

std::string Flavor(const JobSpec& job, const planner::ClusterSpec& cluster, const Strategy& s,
                   Framework framework = Framework::kTorchtitan) {
  return TorchtitanFlavor({.job = job, .cluster = cluster, .strategy = s, .framework = framework});
}

// 16 ranks share one copy, two of them by cp: 8 shards times 4 replicas.
TEST(EmitTorchtitan, AHybridShardedModel) {
  const Strategy s{.dp = 32, .tp = 8, .cp = 2, .zero_stage = 3, .shard_group = 16, .recompute = Recompute::kSelective,
                   .sequence_parallel = true, .context_mode = ContextMode::kAllGather};
  const std::string text = Text(EmitJob("llama3-70b", 64, 8192), EmitCluster("dgx-h100", 64), s);
  for (const char* line : {"name = \"llama3\"\nflavor = \"weft\"", "custom_import = \"weft_flavor\"\n",
                           "data_parallel_replicate_degree = 4\n", "data_parallel_shard_degree = 8\n",
                           "fsdp_reshard_after_forward = \"always\"\n", "tensor_parallel_degree = 8\n", "seq_len = 8192\n",
                           "local_batch_size = 1\n", "global_batch_size = 64\n", "context_parallel_degree = 2\n",
                           "mode = \"selective\"\nselective_ac_option = \"op\"\n", "[compile]\nenable = true\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("rotate_method"))) << "v0.2.2 takes no notice of it in training";
}

TEST(EmitTorchtitan, TheOlderReleaseTurnsKeysRoundTheRing) {
  Strategy s{.dp = 8, .cp = 2, .zero_stage = 3};
  const JobSpec job = EmitJob("llama3-8b", 16, 8192);
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 2), s, Framework::kTorchtitan020),
              HasSubstr("context_parallel_rotate_method = \"alltoall\"\n"));
  s.context_mode = ContextMode::kAllGather;
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 2), s, Framework::kTorchtitan020),
              HasSubstr("context_parallel_rotate_method = \"allgather\"\n"));
}

// Four of the 8 layers of a stage are every second; three are no every n-th.
TEST(EmitTorchtitan, RecomputesEveryFewLayers) {
  Strategy s{.dp = 4, .tp = 4, .pp = 4, .zero_stage = 3, .keep_after_forward = true, .recompute = Recompute::kFull,
             .recompute_layers = 4, .sequence_parallel = true};
  const JobSpec job = EmitJob("llama3-8b", 64, 8192);
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 8), s), HasSubstr("mode = \"selective\"\nselective_ac_option = \"2\"\n"));
  s.recompute_layers = 3;
  const auto refused = TryEmit(EmitTarget::kTorchtitan, job, EmitCluster("dgx-h100", 8), s);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("recompute of 3 layers of each stage with vpp=1, expected a number that the "
                                                   "program can say: every n-th layer of a chunk"));
}

// 126 layers, and embedding and head for one each: 128 over 16 stages of two chunks, 4 each: 3 on the first and the last.
TEST(EmitTorchtitan, APipelineIsCutAsItWasPriced) {
  const Strategy s{.dp = 8, .tp = 8, .pp = 16, .vpp = 2, .zero_stage = 3, .keep_after_forward = true,
                   .sequence_parallel = true, .schedule = ScheduleKind::kInterleaved};
  const std::string text = Text(EmitJob("llama3-405b", 512, 8192), EmitCluster("dgx-h100", 128), s);
  for (const char* line : {"pipeline_parallel_schedule = \"Interleaved1F1B\"\n", "local_batch_size = 64\n",
                           "pipeline_parallel_microbatch_size = 1\n", "fsdp_reshard_after_forward = \"never\"\n",
                           "  [\"tok_embeddings\", \"layers.0\", \"layers.1\", \"layers.2\"],\n",
                           "  [\"layers.3\", \"layers.4\", \"layers.5\", \"layers.6\"],\n",
                           "  [\"layers.123\", \"layers.124\", \"layers.125\", \"norm\", \"output\"],\n]\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const std::set<std::string> layers = OptionsOf(text, R"RE("layers\.([0-9]+)")RE");
  EXPECT_EQ(layers.size(), 126U);
}

// The schedule that splits its backward passes refuses compiled layers.
TEST(EmitTorchtitan, SplitBackwardPassesAreNotCompiled) {
  const Strategy s{.dp = 2, .pp = 4, .vpp = 2, .zero_stage = 3, .keep_after_forward = true, .schedule = ScheduleKind::kZbV};
  const std::string text = Text(EmitJob("llama3-8b", 64, 8192), EmitCluster("dgx-h100", 1), s);
  EXPECT_THAT(text, HasSubstr("pipeline_parallel_schedule = \"ZBVZeroBubble\"\n"));
  EXPECT_THAT(text, HasSubstr("[compile]\nenable = false\n"));
}

// The width of the MLP comes out as int(1/d · 2/3 · 4d) = 2, rounded up to itself; Llama 3 has no scaling: factor 1.
TEST(EmitTorchtitan, TheFlavorHasTheModelsSizesAndNumerics) {
  JobSpec job = EmitJob("llama3-70b", 64, 8192);
  const planner::ClusterSpec cluster = EmitCluster("dgx-h100", 8);
  const Strategy s{.dp = 64, .zero_stage = 3};
  EXPECT_THAT(Flavor(job, cluster, s),
              HasSubstr("llama3_args[\"weft\"] = TransformerModelArgs(dim=8192, n_layers=80, n_heads=64, n_kv_heads=8, "
                        "vocab_size=128256, ffn_dim_multiplier=0.0001220703125, multiple_of=28672, norm_eps=1e-05, rope_theta=500000, "
                        "rope_scaling_args=RoPEScalingArgs(scaling_factor=1, "));
  job.model.numerics.rope.scaling = planner::RopeScaling::kLlama3;
  job.model.numerics.rope.factor = 32;
  job.model.numerics.rope.original_positions = 8192;
  EXPECT_THAT(Flavor(job, cluster, s), HasSubstr("RoPEScalingArgs(scaling_factor=32, low_freq_factor=1, high_freq_factor=4, "
                                                 "original_max_position_embeddings=8192)"));
}

// deepseek-ai/DeepSeek-V3's config.json; v0.2.0 knows no groups of experts.
TEST(EmitTorchtitan, TheFlavorOfDeepSeekV3) {
  const JobSpec job = EmitJob("deepseek-v3", 1024, 4096);
  const Strategy s{.dp = 64, .ep = 8, .zero_stage = 3};
  const std::string text = Flavor(job, EmitCluster("dgx-h100", 8), s);
  for (const char* part : {"deepseekv3_args[\"weft\"] = DeepSeekV3ModelArgs(vocab_size=129280, dim=7168, inter_dim=18432, "
                           "moe_inter_dim=2048, n_layers=61, n_dense_layers=3, n_heads=128, norm_eps=1e-06, q_lora_rank=1536, "
                           "kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, rope_theta=10000, "
                           "rope_factor=40, original_seq_len=4096, mscale=1, ",
                           "MoEArgs(num_experts=256, num_shared_experts=1, top_k=8, score_func=\"sigmoid\", route_norm=True, "
                           "route_scale=2.5, ", "load_balance_coeff=1e-3", "num_expert_groups=8, num_limited_groups=4"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_FALSE(TryEmit(EmitTarget::kTorchtitan, job, EmitCluster("dgx-h100", 8), s, Framework::kTorchtitan020));
}

TEST(EmitTorchtitan, FloatEightConvertsLinearLayers) {
  JobSpec job = EmitJob("llama3-8b", 64, 8192);
  job.precision = planner::Precision::kFp8;
  EXPECT_THAT(Text(job, EmitCluster("dgx-h100", 1), {.dp = 8, .zero_stage = 3}),
              HasSubstr("converters = [\"quantize.linear.float8\"]\n"));
}

}  // namespace
}  // namespace weft::formats

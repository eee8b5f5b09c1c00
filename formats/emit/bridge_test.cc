// Megatron-Bridge's overrides and Accelerate's YAML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/emit/emit_testing.h"

namespace weft::formats {
namespace {

using planner::Strategy;
using testing::HasSubstr;
using testing::Not;

TEST(EmitMegatronBridge, OverridesWhatThePlanDecides) {
  const Strategy s{.dp = 8, .tp = 4, .pp = 4, .cp = 2, .ep = 8, .vpp = 2, .micro_batch = 1, .zero_stage = 1,
                   .recompute = planner::Recompute::kFull, .recompute_layers = 4, .sequence_parallel = true,
                   .schedule = planner::ScheduleKind::kInterleaved};
  const std::string text = EmitText(EmitTarget::kMegatronBridge, EmitJob("mixtral-8x7b", 256, 4096), EmitCluster("dgx-h100", 32), s);
  for (const char* line : {"model.tensor_model_parallel_size=4\n", "model.pipeline_model_parallel_size=4\n",
                           "model.virtual_pipeline_model_parallel_size=2\n", "model.context_parallel_size=2\n",
                           "model.cp_comm_type=p2p\n", "model.expert_model_parallel_size=8\n",
                           "model.expert_tensor_parallel_size=1\n", "model.moe_grouped_gemm=true\n",
                           "model.sequence_parallel=true\n", "train.micro_batch_size=1\n", "train.global_batch_size=256\n",
                           "dataset.seq_length=4096\n", "mixed_precision=bf16_mixed\n", "ddp.use_distributed_optimizer=true\n",
                           "model.recompute_granularity=full\nmodel.recompute_method=block\nmodel.recompute_num_layers=2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// What a recipe may have switched on is switched off: null.
TEST(EmitMegatronBridge, SaysWhatIsNot) {
  const Strategy s{.dp = 8, .zero_stage = 1};
  const std::string text = EmitText(EmitTarget::kMegatronBridge, EmitJob("llama3-8b", 64, 8192), EmitCluster("dgx-h100", 1), s);
  for (const char* line : {"model.virtual_pipeline_model_parallel_size=null\n", "model.recompute_granularity=null\n",
                           "model.recompute_method=null\n", "model.recompute_num_layers=null\n", "checkpoint.load=null\n",
                           "model.sequence_parallel=false\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("expert")));
}

// Shards and replicas: 16 ranks of one copy, 2 copies.
TEST(EmitAccelerate, HybridShards) {
  const Strategy s{.dp = 32, .zero_stage = 3, .shard_group = 16, .recompute = planner::Recompute::kFull};
  const std::string text = EmitText(EmitTarget::kAccelerate, EmitJob("llama3-8b", 64, 8192), EmitCluster("dgx-h100", 4), s);
  for (const char* line : {"distributed_type: FSDP\n", "num_machines: 4\n", "num_processes: 32\n", "mixed_precision: 'bf16'\n",
                           "  fsdp_version: 2\n", "  fsdp_reshard_after_forward: true\n",
                           "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", "  fsdp_activation_checkpointing: true\n",
                           "  parallelism_config_dp_replicate_size: 2\n", "  parallelism_config_dp_shard_size: 16\n",
                           "  parallelism_config_tp_size: 1\n", "  parallelism_config_cp_size: 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(EmitAccelerate, PlainReplicas) {
  const std::string text = EmitText(EmitTarget::kAccelerate, EmitJob("gpt2", 64, 1024), EmitCluster("dgx-h100", 1), {.dp = 8});
  EXPECT_THAT(text, HasSubstr("distributed_type: MULTI_GPU\n"));
  EXPECT_THAT(text, Not(HasSubstr("fsdp")));
}

}  // namespace
}  // namespace weft::formats

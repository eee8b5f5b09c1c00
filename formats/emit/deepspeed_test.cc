// DeepSpeed's JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/emit/emit_testing.h"

namespace weft::formats {
namespace {

using nlohmann::json;
using planner::JobSpec;
using planner::Strategy;

// DeepSpeed's 'Configuration JSON' page and the keys that runtime/config.py of v0.18.9 and v0.19.5 reads.
const std::set<std::string> kKeys = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "bf16", "fp16", "enabled",
    "gradient_clipping", "zero_optimization", "stage", "overlap_comm", "reduce_scatter", "contiguous_gradients",
    "reduce_bucket_size", "allgather_bucket_size", "stage3_prefetch_bucket_size", "tensor_parallel", "autotp_size",
    "sequence_parallel_size", "seq_parallel_communication_data_type", "expert_parallel", "autoep_size",
    "optimizer", "type", "params", "lr", "torch_adam"};

json Config(const JobSpec& job, const planner::ClusterSpec& cluster, const Strategy& s) {
  const std::string text = EmitText(EmitTarget::kDeepSpeed, job, cluster, s);
  ExpectSubset(OptionsOf(text, R"RE("([A-Za-z0-9_]+)":)RE"), kKeys);
  return json::parse(text);
}

// 512 sequences over 16 ranks, 4 at a time: 8 passes. Buckets count elements of two bytes.
TEST(EmitDeepSpeed, KeepsItsBatchInvariant) {
  const Strategy s{.dp = 16, .micro_batch = 4, .zero_stage = 3, .recompute = planner::Recompute::kFull,
                   .bucket_bytes = Bytes(100 << 20)};
  const json config = Config(EmitJob("llama3-8b", 512, 8192), EmitCluster("dgx-h100", 2), s);
  EXPECT_EQ(config["train_batch_size"], 512);
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"], 4);
  EXPECT_EQ(config["gradient_accumulation_steps"], 8);
  EXPECT_EQ(config["zero_optimization"]["stage"], 3);
  EXPECT_EQ(config["zero_optimization"]["reduce_bucket_size"], 50 << 20);
  EXPECT_EQ(config["gradient_clipping"], 1.0);
  EXPECT_TRUE(config["bf16"]["enabled"]);
}

// The file alone makes DeepSpeed hold the batch against all ranks, tp included (runtime/config.py): 4 · 8 · 32 for 512
// sequences. Left out, it is that product, and no check fails.
TEST(EmitDeepSpeed, WithTensorParallelismTheBatchIsLeftToItsFactors) {
  const Strategy s{.dp = 16, .tp = 2, .micro_batch = 4, .zero_stage = 2};
  const json config = Config(EmitJob("llama3-8b", 512, 8192), EmitCluster("dgx-h100", 4), s);
  EXPECT_FALSE(config.contains("train_batch_size"));
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"].get<int64_t>() *
                config["gradient_accumulation_steps"].get<int64_t>() * 16, 512);
  EXPECT_EQ(config["tensor_parallel"]["autotp_size"], 2);
}

// Only deepspeed.checkpointing.configure() in a model's own code reads the section: the training script turns it on.
TEST(EmitDeepSpeed, HasNoSectionOfCheckpoints) {
  for (const planner::Recompute recompute : {planner::Recompute::kNone, planner::Recompute::kFull}) {
    const json config = Config(EmitJob("llama3-8b", 512, 8192), EmitCluster("dgx-h100", 2),
                               {.dp = 16, .zero_stage = 3, .recompute = recompute});
    EXPECT_FALSE(config.contains("activation_checkpointing"));
  }
}

TEST(EmitDeepSpeed, AMixture) {
  JobSpec job = EmitJob("mixtral-8x7b", 32, 4096);
  job.precision = planner::Precision::kFp16;
  const json config = Config(job, EmitCluster("dgx-a100", 4), {.dp = 32, .ep = 8, .zero_stage = 1});
  EXPECT_EQ(config["expert_parallel"], json({{"enabled", true}, {"autoep_size", 8}}));
  EXPECT_TRUE(config["fp16"]["enabled"]);
  EXPECT_FALSE(config.contains("bf16"));
}

// Ranks of a sequence count for one in the batch: 2 · 16 · 1 of 32 GPUs.
TEST(EmitDeepSpeed, SequencesOverSeveralRanks) {
  const json config = Config(EmitJob("llama3-8b", 32, 8192), EmitCluster("dgx-h100", 4),
                             {.dp = 16, .cp = 2, .zero_stage = 3, .context_mode = planner::ContextMode::kUlysses});
  EXPECT_EQ(config["sequence_parallel_size"], 2);
  EXPECT_EQ(config["train_batch_size"], 32);
  EXPECT_EQ(config["gradient_accumulation_steps"], 2);
}

}  // namespace
}  // namespace weft::formats

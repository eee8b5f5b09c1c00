#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/emit/writers.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using nlohmann::ordered_json;
using planner::Strategy;

/// The first part of the strategy that DeepSpeed cannot run, or nothing.
std::string Obstacle(const EmitInput& input) {
  const Strategy& s = input.strategy;
  if (s.tensor_mode != planner::TensorMode::k1D) {
    return fmt::format("tensor mode {}, expected 1d", planner::TensorModeName(s.tensor_mode));
  }
  if (s.data_sync == planner::DataSync::kParameterServer) return "a parameter server, expected ring or hierarchical";
  if (s.sharding == planner::Sharding::kOperator) return "sharding osdp, expected uniform";
  if (s.pp > 1 && s.schedule != planner::ScheduleKind::k1F1B) {
    return fmt::format("schedule {}, expected 1f1b", planner::ScheduleName(s.schedule));
  }
  if (s.pp > 1 && s.zero_stage > 1) return fmt::format("zero_stage={} with pp={}, expected 0 or 1", s.zero_stage, s.pp);
  if (s.cp > 1 && s.context_mode != planner::ContextMode::kUlysses) {
    return fmt::format("context mode {}, expected ulysses", planner::ContextModeName(s.context_mode));
  }
  if (s.shard_group > 0 && s.shard_group < s.dp * s.cp) {
    return fmt::format("shard_group={}, expected shards over all dp x cp = {} ranks", s.shard_group, s.dp * s.cp);
  }
  if (input.job.precision == planner::Precision::kFp8 || input.job.precision == planner::Precision::kFp4) {
    return fmt::format("precision {}, expected bf16, fp16 or fp32", planner::PrecisionName(input.job.precision));
  }
  return "";
}

ordered_json ZeroOptimization(const Strategy& s) {
  // Bucket sizes count elements of the 16-bit gradients.
  const int64_t elements = std::max<int64_t>(1, s.bucket_bytes.count() / 2);
  ordered_json zero = {{"stage", s.zero_stage}};
  if (s.zero_stage == 0) return zero;
  zero["overlap_comm"] = true;
  zero["reduce_scatter"] = true;
  zero["contiguous_gradients"] = true;
  zero["reduce_bucket_size"] = elements;
  zero["allgather_bucket_size"] = elements;
  if (s.zero_stage == 3) zero["stage3_prefetch_bucket_size"] = elements;
  return zero;
}

}  // namespace

Result<std::string> EmitDeepSpeed(const EmitInput& input) {
  if (const std::string obstacle = Obstacle(input); !obstacle.empty()) {
    return CannotEmit(EmitTarget::kDeepSpeed, obstacle);
  }
  const Strategy& s = input.strategy;
  ordered_json config = {{"train_batch_size", input.job.global_batch},
                         {"train_micro_batch_size_per_gpu", s.micro_batch},
                         {"gradient_accumulation_steps", planner::MicroBatches(s, input.job.global_batch)}};
  if (input.job.precision == planner::Precision::kBf16) config["bf16"] = {{"enabled", true}};
  if (input.job.precision == planner::Precision::kFp16) config["fp16"] = {{"enabled", true}};
  config["zero_optimization"] = ZeroOptimization(s);
  if (s.tp > 1) config["tensor_parallel"] = {{"autotp_size", s.tp}};
  if (s.cp > 1) config["sequence_parallel_size"] = s.cp;
  if (s.ep > 1) config["expert_parallel"] = {{"enabled", true}, {"autoep_size", s.ep}};
  if (s.recompute == planner::Recompute::kFull) {
    const int64_t stage = planner::StageLayers(input.job.model.layers, s.pp, 0);
    config["activation_checkpointing"] = {{"number_checkpoints", s.recompute_layers < 0 ? stage : s.recompute_layers}};
  }
  return config.dump(2) + "\n";
}

}  // namespace weft::formats

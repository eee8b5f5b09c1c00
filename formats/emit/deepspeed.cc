#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/emit/writers.h"

namespace weft::formats {
namespace {

using nlohmann::ordered_json;
using planner::Precision;
using planner::Strategy;

ordered_json ZeroOptimization(const Strategy& s, Precision precision) {
  // Bucket sizes count elements; that of gathers has to be even.
  const int64_t elements = std::max<int64_t>(2, s.bucket_bytes.count() / planner::StorageBytes(precision)) / 2 * 2;
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

Result<std::string> EmitDeepSpeed(const EmitRequest& request) {
  const Strategy& s = request.strategy;
  ordered_json config;
  // With tensor parallelism from this file alone DeepSpeed holds the batch against all ranks, tp included, and refuses the
  // right one: it is left to the product of the other two.
  if (s.tp == 1) config["train_batch_size"] = request.job.global_batch;
  config["train_micro_batch_size_per_gpu"] = s.micro_batch;
  config["gradient_accumulation_steps"] = planner::MicroBatches(s, request.job.global_batch);
  if (request.job.precision == Precision::kBf16) config["bf16"] = {{"enabled", true}};
  if (request.job.precision == Precision::kFp16) config["fp16"] = {{"enabled", true}};
  // Made by DeepSpeed, which replaces experts before: an optimizer of the script's would hold what they were.
  config["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"torch_adam", true}}}};
  config["gradient_clipping"] = 1.0;  // off before v0.19, on since: said, so that all releases do the same
  config["zero_optimization"] = ZeroOptimization(s, request.job.precision);
  if (s.tp > 1) config["tensor_parallel"] = {{"autotp_size", s.tp}};
  if (s.cp > 1) {
    config["sequence_parallel_size"] = s.cp;
    config["seq_parallel_communication_data_type"] = request.job.precision == Precision::kFp16 ? "fp16" : "bf16";
  }
  if (s.ep > 1) config["expert_parallel"] = {{"enabled", true}, {"autoep_size", s.ep}};
  return config.dump(2) + "\n";
}

}  // namespace weft::formats

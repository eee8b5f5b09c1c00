// Megatron-Bridge and Accelerate.
#include <fmt/format.h>

#include "formats/emit/writers.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::Precision;
using planner::Strategy;

const char* MixedPrecision(Precision precision, bool blackwell) {
  switch (precision) {
    case Precision::kFp16: return "fp16_mixed";
    case Precision::kFp8: return blackwell ? "bf16_with_mxfp8_mixed" : "bf16_with_fp8_current_scaling_mixed";
    case Precision::kFp4: return "bf16_with_nvfp4_mixed";
    default: return "bf16_mixed";
  }
}

}  // namespace

Result<std::string> EmitMegatronBridge(const EmitRequest& request) {
  const Strategy& s = request.strategy;
  const planner::ModelSpec& model = request.job.model;
  if (request.job.precision == Precision::kFp32) {
    return CannotEmit(EmitTarget::kMegatronBridge, "precision fp32, expected bf16, fp16, fp8 or fp4: its recipes mix precisions");
  }
  std::string text = fmt::format("# {}\n# Behind scripts/training/run_recipe.py --recipe NAME, a recipe of the same model.\n",
                                 PlanSummary(request));
  const auto add = [&text](std::string_view key, const auto& value) { text += fmt::format("{}={}\n", key, value); };
  const auto flag = [&](std::string_view key, bool on) { add(key, on ? "true" : "false"); };
  add("model.tensor_model_parallel_size", s.tp);
  add("model.pipeline_model_parallel_size", s.pp);
  add("model.virtual_pipeline_model_parallel_size", s.vpp > 1 ? fmt::format("{}", s.vpp) : "null");
  if (model.layers % (s.pp * s.vpp) != 0) {
    add("model.pipeline_model_parallel_layout", fmt::format("'{}'", MegatronLayout(model, s)));
  } else {
    add("model.pipeline_model_parallel_layout", "null");
  }
  add("model.context_parallel_size", s.cp);
  if (s.cp > 1) {
    add("model.cp_comm_type", s.context_mode == planner::ContextMode::kRing        ? "p2p"
                              : s.context_mode == planner::ContextMode::kAllGather ? "all_gather"
                                                                                   : "a2a");
  }
  if (model.IsMoe()) {
    add("model.expert_model_parallel_size", s.ep);
    add("model.expert_tensor_parallel_size", s.etp);
    add("model.moe_token_dispatcher_type", "alltoall");
    flag("model.moe_grouped_gemm", true);
  }
  flag("model.sequence_parallel", s.sequence_parallel);
  add("train.micro_batch_size", s.micro_batch);
  add("train.global_batch_size", request.job.global_batch);
  add("dataset.seq_length", request.job.sequence);
  add("mixed_precision", MixedPrecision(request.job.precision, planner::IsBlackwell(request.cluster.device)));
  flag("dist.use_tp_pp_dp_mapping", s.rank_order == planner::RankOrder::kTpCpPpDp && s.pp > 1);
  flag("ddp.use_distributed_optimizer", s.zero_stage >= 1);
  if (s.zero_stage >= 1 && s.shard_group > 0 && s.shard_group < s.dp * s.cp) {
    add("ddp.num_distributed_optimizer_instances", s.dp * s.cp / s.shard_group);
  }
  flag("ddp.overlap_grad_reduce", s.dp * s.cp > 1);
  flag("ddp.overlap_param_gather", s.zero_stage >= 1 && s.dp * s.cp > 1);
  const bool full = s.recompute == planner::Recompute::kFull, none = s.recompute == planner::Recompute::kNone;
  add("model.recompute_granularity", none ? "null" : full ? "full" : "selective");
  add("model.recompute_method", !full ? "null" : s.recompute_layers < 0 ? "uniform" : "block");
  add("model.recompute_num_layers", !full ? "null" : fmt::format("{}", s.recompute_layers < 0 ? 1 : s.recompute_layers / s.vpp));
  if (!none && !full) {
    add("model.recompute_modules", fmt::format("[layernorm{}{}]", model.IsMoe() ? ",moe_act" : "",
                                               model.attention == planner::Attention::kLatent ? ",mla_up_proj" : ""));
  }
  add("tokenizer.vocab_size", model.vocab);
  add("checkpoint.load", "null");
  return text;
}

Result<std::string> EmitAccelerate(const EmitRequest& request) {
  const Strategy& s = request.strategy;
  const int64_t gpus = planner::GpuCount(s), per_host = std::min(gpus, request.cluster.GpusPerHost());
  const int64_t group = s.shard_group > 0 ? s.shard_group : s.dp * s.cp;
  const Precision precision = request.job.precision;
  const char* mixed = precision == Precision::kFp16 ? "fp16" : precision == Precision::kFp8 ? "fp8"
                      : precision == Precision::kFp32 ? "no" : "bf16";
  const bool sharded = s.zero_stage == 3;
  std::string text = fmt::format(
      "# {}\ncompute_environment: LOCAL_MACHINE\ndistributed_type: {}\nnum_machines: {}\nnum_processes: {}\nmixed_precision: '{}'\n",
      PlanSummary(request), sharded ? "FSDP" : "MULTI_GPU", gpus / per_host, gpus, mixed);
  if (!sharded) return text;
  text += fmt::format(
      "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: {}\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_activation_checkpointing: {}\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
      s.keep_after_forward ? "false" : "true", s.recompute == planner::Recompute::kFull ? "true" : "false");
  text += fmt::format(
      "parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n  parallelism_config_dp_shard_size: {}\n"
      "  parallelism_config_tp_size: {}\n  parallelism_config_cp_size: {}\n",
      s.dp / (group / s.cp), group / s.cp, s.tp, s.cp);
  return text;
}

}  // namespace weft::formats

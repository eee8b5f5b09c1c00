#include <fmt/format.h>

#include <utility>

#include "formats/emit/writers.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::Framework;
using planner::ModelSpec;
using planner::Strategy;

/// torchtitan's name of a schedule; nullptr for one that it lacks.
const char* ScheduleClass(planner::ScheduleKind kind) {
  switch (kind) {
    case planner::ScheduleKind::kGpipe: return "GPipe";
    case planner::ScheduleKind::k1F1B: return "1F1B";
    case planner::ScheduleKind::kInterleaved: return "Interleaved1F1B";
    case planner::ScheduleKind::kZbV: return "ZBVZeroBubble";
    case planner::ScheduleKind::kEager1F1B:
    case planner::ScheduleKind::kZbH1:
    case planner::ScheduleKind::kZbH2: break;
  }
  return nullptr;
}

/// Degrees of replication and of sharding, of which torchtitan multiplies the second by cp.
std::pair<int64_t, int64_t> DataDegrees(const Strategy& s) {
  if (s.zero_stage == 0) return {s.dp, 1};
  const int64_t group = s.shard_group > 0 ? s.shard_group : s.dp * s.cp;
  return {s.dp / (group / s.cp), group / s.cp};
}

/// The modules of every chunk, so that stages are cut as they were priced.
std::string StageModules(const ModelSpec& model, const Strategy& s) {
  std::string text = "module_fqns_per_model_part = [\n";
  const int64_t chunks = s.pp * s.vpp;
  int64_t layer = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::string modules = chunk == 0 ? "\"tok_embeddings\"" : "";
    for (int64_t i = planner::StageLayers(model.layers, chunks, chunk); i > 0; --i) {
      modules += fmt::format("{}\"layers.{}\"", modules.empty() ? "" : ", ", layer++);
    }
    if (chunk == chunks - 1) modules += ", \"norm\", \"output\"";
    text += fmt::format("  [{}],\n", modules);
  }
  return text + "]\n";
}

std::string ParallelismTable(const EmitRequest& request, Framework framework) {
  const Strategy& s = request.strategy;
  const auto [replicas, shards] = DataDegrees(s);
  std::string text = "[parallelism]\n";
  const auto add = [&text](std::string_view key, const auto& value) { text += fmt::format("{} = {}\n", key, value); };
  add("data_parallel_replicate_degree", replicas);
  add("data_parallel_shard_degree", shards);
  text += OperatorComments(request);
  add("fsdp_reshard_after_forward", s.zero_stage == 3 && !s.keep_after_forward ? "\"always\"" : "\"never\"");
  add("tensor_parallel_degree", s.tp);
  add("pipeline_parallel_degree", s.pp);
  if (s.pp > 1) {
    add("pipeline_parallel_schedule", fmt::format("\"{}\"", ScheduleClass(s.schedule)));
    add("pipeline_parallel_microbatch_size", s.micro_batch);
    text += StageModules(request.job.model, s);
  }
  add("context_parallel_degree", s.cp);
  if (s.cp > 1 && framework == Framework::kTorchtitan020) {
    add("context_parallel_rotate_method", s.context_mode == planner::ContextMode::kRing ? "\"alltoall\"" : "\"allgather\"");
  }
  if (request.job.model.IsMoe()) {
    add("expert_parallel_degree", s.ep);
    add("expert_tensor_parallel_degree", s.etp);
  }
  return text;
}

/// Full recomputation of n of a stage's layers is that of every k-th: planner::RecomputesSome.
std::string CheckpointTable(const EmitRequest& request) {
  const Strategy& s = request.strategy;
  const int64_t layers = request.job.model.layers / s.pp;
  const bool some = s.recompute_layers > 0 && s.recompute_layers < layers;
  switch (s.recompute_layers == 0 ? planner::Recompute::kNone : s.recompute) {
    case planner::Recompute::kNone: break;
    case planner::Recompute::kSelective:
      return "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n";
    case planner::Recompute::kFull:
      if (!some) return "[activation_checkpoint]\nmode = \"full\"\n";
      return fmt::format("[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"{}\"\n",
                         layers / s.recompute_layers);
  }
  return "[activation_checkpoint]\nmode = \"none\"\n";
}

const char* PythonBool(bool value) { return value ? "True" : "False"; }

std::string MoeArguments(const ModelSpec& model, Framework framework) {
  const planner::RouterNumerics& router = model.numerics.router;
  std::string text = fmt::format(
      "MoEArgs(num_experts={}, num_shared_experts={}, top_k={}, score_func=\"{}\", route_norm={}, route_scale={}, "
      "score_before_experts=False, use_grouped_mm=True, load_balance_coeff={}",
      model.experts, model.shared_experts, model.experts_per_token,
      router.score == planner::RouterScore::kSigmoid ? "sigmoid" : "softmax", PythonBool(router.normalise_top_k),
      router.scaling_factor, router.expert_bias ? "1e-3" : "None");
  if (router.groups > 1 && framework == Framework::kTorchtitan) {
    text += fmt::format(", num_expert_groups={}, num_limited_groups={}", router.groups, router.groups_per_token);
  }
  return text + ")";
}

std::string Llama3Arguments(const ModelSpec& model) {
  const planner::RopeNumerics& rope = model.numerics.rope;
  const bool scaled = rope.scaling == planner::RopeScaling::kLlama3;
  // The inner width is a rounded-up share of 8/3 of the hidden width: round up to the width itself.
  return fmt::format(
      "TransformerModelArgs(dim={}, n_layers={}, n_heads={}, n_kv_heads={}, vocab_size={}, ffn_dim_multiplier={}, "
      "multiple_of={}, norm_eps={}, rope_theta={}, rope_scaling_args=RoPEScalingArgs(scaling_factor={}, low_freq_factor={}, "
      "high_freq_factor={}, original_max_position_embeddings={}))",
      model.hidden, model.layers, model.heads, model.kv_heads, model.vocab, 1 / static_cast<double>(model.hidden),
      model.ffn_hidden, model.numerics.norm_epsilon, rope.theta, scaled ? rope.factor : 1, scaled ? rope.low_frequency_factor : 1, scaled ? rope.high_frequency_factor : 4,
      scaled && rope.original_positions > 0 ? rope.original_positions : 8192);
}

std::string Qwen3Arguments(const ModelSpec& model, Framework framework) {
  std::string text = fmt::format(
      "Qwen3ModelArgs(dim={}, n_layers={}, n_heads={}, n_kv_heads={}, vocab_size={}, head_dim={}, hidden_dim={}, norm_eps={}, "
      "rope_theta={}, qk_norm=True, enable_weight_tying={}",
      model.hidden, model.layers, model.heads, model.kv_heads, model.vocab, model.head_dim, model.ffn_hidden,
      model.numerics.norm_epsilon, model.numerics.rope.theta, PythonBool(model.tied_embeddings));
  if (model.IsMoe()) {
    text += fmt::format(", moe_enabled=True, moe_inter_dim={}, moe_args={}", model.expert_ffn_hidden, MoeArguments(model, framework));
  }
  return text + ")";
}

std::string DeepSeekArguments(const ModelSpec& model, Framework framework) {
  const planner::RopeNumerics& rope = model.numerics.rope;
  const bool yarn = rope.scaling == planner::RopeScaling::kYarn;
  return fmt::format(
      "DeepSeekV3ModelArgs(vocab_size={}, dim={}, inter_dim={}, moe_inter_dim={}, n_layers={}, n_dense_layers={}, n_heads={}, "
      "norm_eps={}, q_lora_rank={}, kv_lora_rank={}, qk_nope_head_dim={}, qk_rope_head_dim={}, v_head_dim={}, rope_theta={}, "
      "rope_factor={}, original_seq_len={}, mscale={}, moe_args={})",
      model.vocab, model.hidden, model.ffn_hidden, model.expert_ffn_hidden, model.layers, model.first_dense_layers, model.heads,
      model.numerics.norm_epsilon, model.q_lora_rank, model.kv_lora_rank, model.qk_nope_head_dim, model.qk_rope_head_dim,
      model.v_head_dim, rope.theta, yarn ? rope.factor : 1, yarn && rope.original_positions > 0 ? rope.original_positions : 4096,
      yarn && rope.mscale > 0 ? rope.mscale : 1, MoeArguments(model, framework));
}

}  // namespace

std::string TorchtitanFlavor(const EmitRequest& request) {
  const Framework framework = FrameworkOf(EmitTarget::kTorchtitan, request);
  const std::string_view family = planner::TorchtitanFamily(request.job.model);
  const ModelSpec& model = request.job.model;
  std::string text = fmt::format("# {}\n# Registers the model's sizes and numerics as flavor \"weft\" of {}: [experimental] "
                                 "custom_import names this module.\n", PlanSummary(request), family);
  std::string arguments;
  if (family == "llama3") {
    text += "from torchtitan.models.llama3 import llama3_args\n"
            "from torchtitan.models.llama3.model.args import RoPEScalingArgs, TransformerModelArgs\n\n";
    arguments = Llama3Arguments(model);
  } else if (family == "qwen3") {
    text += "from torchtitan.models.moe import MoEArgs\nfrom torchtitan.models.qwen3 import qwen3_args\n"
            "from torchtitan.models.qwen3.model.args import Qwen3ModelArgs\n\n";
    arguments = Qwen3Arguments(model, framework);
  } else {
    text += "from torchtitan.models.deepseek_v3 import deepseekv3_args\n"
            "from torchtitan.models.deepseek_v3.model.args import DeepSeekV3ModelArgs\nfrom torchtitan.models.moe import MoEArgs\n\n";
    arguments = DeepSeekArguments(model, framework);
  }
  const char* table = family == "llama3" ? "llama3_args" : family == "qwen3" ? "qwen3_args" : "deepseekv3_args";
  return text + fmt::format("{}[\"weft\"] = {}\n", table, arguments);
}

Result<std::string> EmitTorchtitan(const EmitRequest& request) {
  const Framework framework = FrameworkOf(EmitTarget::kTorchtitan, request);
  const Strategy& s = request.strategy;
  // A pipeline cuts the local batch in micro-batches itself; without one, gradients accumulate over local batches.
  const int64_t local_batch = s.pp > 1 ? request.job.global_batch / s.dp : s.micro_batch;
  const bool wide = planner::StorageBytes(request.job.precision) == 4;
  const bool narrow = request.job.precision == planner::Precision::kFp8;
  // The loss and layers are compiled in the runs that the model's constants come from. Schedules that split the backward
  // pass refuse compiled layers.
  const bool compiled = s.pp == 1 || !planner::SplitsBackward(s.schedule);
  return fmt::format(
      "# {}\n[model]\nname = \"{}\"\nflavor = \"weft\"  # of weft_flavor.py\n{}\n[experimental]\ncustom_import = \"weft_flavor\"\n\n"
      "{}[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\nmixed_precision_param = \"{}\"\n\n"
      "[compile]\nenable = {}\n\n{}\n{}",
      PlanSummary(request), planner::TorchtitanFamily(request.job.model),
      narrow ? "converters = [\"quantize.linear.float8\"]\n" : "",
      narrow ? "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n\n" : "", local_batch, request.job.global_batch,
      request.job.sequence, wide ? "float32" : "bfloat16", compiled ? "true" : "false", ParallelismTable(request, framework),
      CheckpointTable(request));
}

}  // namespace weft::formats

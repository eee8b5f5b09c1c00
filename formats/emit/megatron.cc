#include <fmt/format.h>

#include <algorithm>

#include "formats/emit/writers.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::Attention;
using planner::ModelSpec;
using planner::Strategy;

// Gradients are reduced in fp32 unless told otherwise, and --ddp-bucket-size counts parameters.
constexpr int64_t kGradientBytes = 4;

class Arguments {
 public:
  void Flag(std::string_view option, bool on = true) {
    if (on) text_ += fmt::format("--{}\n", option);
  }
  template <typename T>
  void Add(std::string_view option, const T& value) {
    text_ += fmt::format("--{} {}\n", option, value);
  }
  void AddIf(bool condition, std::string_view option, int64_t value) {
    if (condition) Add(option, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void Experts(const ModelSpec& model, Arguments* out) {
  out->Add("num-experts", model.experts);
  out->Add("moe-router-topk", model.experts_per_token);
  out->Add("moe-ffn-hidden-size", model.expert_ffn_hidden);
  out->Add("moe-token-dispatcher-type", "alltoall");
  if (model.shared_experts > 0) {
    out->Add("moe-shared-expert-intermediate-size", model.shared_experts * model.shared_expert_ffn_hidden);
    out->Flag("moe-shared-expert-gate", model.shared_expert_gate);
  }
  if (model.MoeLayers() == model.layers) return;
  std::string pattern;  // runs of equal layers: [0]*3+[1]*58
  for (int64_t layer = 0, end = 0; layer < model.layers; layer = end) {
    for (end = layer; end < model.layers && model.IsMoeLayer(end) == model.IsMoeLayer(layer);) ++end;
    pattern += fmt::format("{}[{}]*{}", layer > 0 ? "+" : "", model.IsMoeLayer(layer) ? 1 : 0, end - layer);
  }
  out->Add("moe-layer-freq", fmt::format("\"({})\"", pattern));
}

void AttentionOptions(const ModelSpec& model, Arguments* out) {
  out->Add("num-attention-heads", model.heads);
  if (model.attention == Attention::kLatent) {
    out->Flag("multi-latent-attention");
    out->AddIf(model.q_lora_rank > 0, "q-lora-rank", model.q_lora_rank);
    out->Add("kv-lora-rank", model.kv_lora_rank);
    out->Add("qk-head-dim", model.qk_nope_head_dim);
    out->Add("qk-pos-emb-head-dim", model.qk_rope_head_dim);
    out->Add("v-head-dim", model.v_head_dim);
    return;
  }
  out->Flag("group-query-attention", model.kv_heads < model.heads);
  out->AddIf(model.kv_heads < model.heads, "num-query-groups", model.kv_heads);
  out->Add("kv-channels", model.head_dim);
  out->Flag("qk-layernorm", model.query_key_norm);
}

void ModelOptions(const EmitInput& input, Arguments* out) {
  const ModelSpec& model = input.job.model;
  out->Add("num-layers", model.layers);
  out->Add("hidden-size", model.hidden);
  out->Add("ffn-hidden-size", model.ffn_hidden);
  AttentionOptions(model, out);
  out->Add("seq-length", input.job.sequence);
  out->Add("max-position-embeddings", std::max(model.max_positions, input.job.sequence));
  out->Add("position-embedding-type", model.learned_positions ? "learned_absolute" : "rope");
  out->Add("normalization", model.rms_norm ? "RMSNorm" : "LayerNorm");
  out->Add("vocab-size", model.vocab);
  out->Flag("swiglu", model.gated_mlp);
  out->Flag("untie-embeddings-and-output-weights", !model.tied_embeddings);
  out->Flag("disable-bias-linear", !model.mlp_bias);
  out->Flag("add-qkv-bias", model.attention_bias && !model.mlp_bias);
  if (!model.KeepsDropoutMasks()) {
    out->Add("attention-dropout", "0.0");
    out->Add("hidden-dropout", "0.0");
  }
  if (model.IsMoe()) Experts(model, out);
}

/// "Et*7|t*8|t*7L": decoder layers of every chunk, with embedding and loss; chunks go round the stages.
std::string PipelineLayout(const ModelSpec& model, const Strategy& s) {
  std::string layout = "E";
  for (int64_t chunk = 0; chunk < s.pp * s.vpp; ++chunk) {
    const int64_t layers = planner::StageLayers(model.layers, s.pp * s.vpp, chunk);
    if (chunk > 0) layout += "|";
    if (layers > 0) layout += fmt::format("t*{}", layers);
  }
  return layout + "L";
}

void DegreeOptions(const EmitInput& input, Arguments* out) {
  const Strategy& s = input.strategy;
  const ModelSpec& model = input.job.model;
  out->Add("tensor-model-parallel-size", s.tp);
  out->Add("pipeline-model-parallel-size", s.pp);
  out->Add("context-parallel-size", s.cp);
  if (model.IsMoe()) {
    out->Add("expert-model-parallel-size", s.ep);
    out->Add("expert-tensor-parallel-size", s.etp);
  }
  out->Flag("sequence-parallel", s.sequence_parallel);
  out->Flag("use-tp-pp-dp-mapping", s.rank_order == planner::RankOrder::kTpCpPpDp);
  if (s.cp > 1) {
    const planner::ContextMode mode = s.context_mode;
    out->Add("cp-comm-type", mode == planner::ContextMode::kRing        ? "p2p"
                             : mode == planner::ContextMode::kAllGather ? "allgather"
                                                                        : "a2a");
  }
  if (s.pp > 1 && model.layers % (s.pp * s.vpp) != 0) {
    out->Add("pipeline-model-parallel-layout", fmt::format("\"{}\"", PipelineLayout(model, s)));
  } else if (s.vpp > 1) {
    out->Add("num-layers-per-virtual-pipeline-stage", model.layers / (s.pp * s.vpp));
  }
}

void BatchAndMemoryOptions(const EmitInput& input, Arguments* out) {
  const Strategy& s = input.strategy;
  out->Add("micro-batch-size", s.micro_batch);
  out->Add("global-batch-size", input.job.global_batch);
  out->Flag("use-distributed-optimizer", s.zero_stage >= 1);
  if (s.zero_stage >= 2) {
    out->Flag("use-megatron-fsdp");
    out->Add("data-parallel-sharding-strategy", s.zero_stage == 2 ? "optim_grads" : "optim_grads_params");
  }
  if (s.zero_stage >= 1 && s.shard_group > 0 && s.shard_group < s.dp * s.cp) {
    out->Add("num-distributed-optimizer-instances", s.dp * s.cp / s.shard_group);
  }
  if (s.dp * s.cp > 1) {
    out->Flag("overlap-grad-reduce");
    out->Flag("overlap-param-gather", s.zero_stage >= 1);
    out->Add("ddp-bucket-size", std::max<int64_t>(1, s.bucket_bytes.count() / kGradientBytes));
  }
  if (s.recompute == planner::Recompute::kSelective) {
    out->Add("recompute-granularity", "selective");
    out->Add("recompute-modules", "core_attn");
  } else if (s.recompute == planner::Recompute::kFull && s.recompute_layers != 0) {
    out->Add("recompute-granularity", "full");
    out->Add("recompute-method", s.recompute_layers < 0 ? "uniform" : "block");
    out->Add("recompute-num-layers", s.recompute_layers < 0 ? 1 : s.recompute_layers);
  }
}

void PrecisionOptions(planner::Precision precision, Arguments* out) {
  using enum planner::Precision;
  if (precision == kFp16) out->Flag("fp16");
  if (precision == kBf16 || precision == kFp8 || precision == kFp4) out->Flag("bf16");
  if (precision == kFp8) out->Add("fp8-format", "hybrid");
  if (precision == kFp4) out->Add("fp4-format", "e2m1");
}

}  // namespace

Result<std::string> EmitMegatron(const EmitInput& input) {
  const Strategy& s = input.strategy;
  const auto cannot = [](const std::string& what) { return CannotEmit(EmitTarget::kMegatron, what); };
  if (input.job.model.IsCnn()) return cannot("a 3D CNN, expected a transformer");
  if (s.tensor_mode != planner::TensorMode::k1D) {
    return cannot(fmt::format("tensor mode {}, expected 1d", planner::TensorModeName(s.tensor_mode)));
  }
  if (s.sharding == planner::Sharding::kOperator) return cannot("sharding osdp, expected uniform");
  const planner::ScheduleKind schedule = s.schedule;
  if (s.pp > 1 && schedule != planner::ScheduleKind::k1F1B && schedule != planner::ScheduleKind::kInterleaved) {
    return cannot(fmt::format("schedule {}, expected 1f1b or interleaved", planner::ScheduleName(schedule)));
  }
  if (s.data_sync == planner::DataSync::kParameterServer) return cannot("a parameter server, expected ring or hierarchical");
  Arguments out;
  ModelOptions(input, &out);
  DegreeOptions(input, &out);
  BatchAndMemoryOptions(input, &out);
  PrecisionOptions(input.job.precision, &out);
  return fmt::format("# {}\n", PlanSummary(input)) + out.text();
}

}  // namespace weft::formats

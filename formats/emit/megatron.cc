#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/emit/writers.h"
#include "planner/parallelism/partition.h"

namespace weft::formats {
namespace {

using planner::Attention;
using planner::Framework;
using planner::ModelSpec;
using planner::Precision;
using planner::RopeScaling;
using planner::Strategy;

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

/// Runs of equal layers, "([0]*3+[1]*58)", quoted for a shell.
template <typename Holds>
std::string LayerPattern(int64_t layers, const Holds& holds) {
  std::string pattern;
  for (int64_t layer = 0, end = 0; layer < layers; layer = end) {
    for (end = layer; end < layers && holds(end) == holds(layer);) ++end;
    pattern += fmt::format("{}[{}]*{}", layer > 0 ? "+" : "", holds(layer) ? 1 : 0, end - layer);
  }
  return fmt::format("\"({})\"", pattern);
}

void RouterOptions(const ModelSpec& model, Arguments* out) {
  const planner::RouterNumerics& router = model.numerics.router;
  const bool sigmoid = router.score == planner::RouterScore::kSigmoid;
  out->Add("moe-router-score-function", sigmoid ? "sigmoid" : "softmax");
  // A choice among one expert has no scores to normalise.
  const bool before = router.PreSoftmax() || (!sigmoid && model.experts_per_token == 1);
  out->Flag("moe-router-pre-softmax", before);
  if (router.groups > 1) {
    out->Add("moe-router-num-groups", router.groups);
    out->Add("moe-router-group-topk", router.groups_per_token);
  }
  if (router.scaling_factor != 1 && (sigmoid || before)) out->Add("moe-router-topk-scaling-factor", router.scaling_factor);
  out->Flag("moe-router-enable-expert-bias", router.expert_bias);
  if (router.aux_loss > 0) {
    out->Add("moe-router-load-balancing-type", router.aux_loss_per_sequence ? "seq_aux_loss" : "aux_loss");
    out->Add("moe-aux-loss-coeff", router.aux_loss);
  } else {
    out->Add("moe-router-load-balancing-type", "none");
  }
  if (router.jitter > 0) out->Add("moe-input-jitter-eps", router.jitter);
}

void ExpertOptions(const ModelSpec& model, Framework framework, Arguments* out) {
  out->Add("num-experts", model.experts);
  out->Add("moe-router-topk", model.experts_per_token);
  out->Add("moe-ffn-hidden-size", model.expert_ffn_hidden);
  out->Flag("moe-grouped-gemm");
  out->Add("moe-token-dispatcher-type", "alltoall");
  RouterOptions(model, out);
  if (model.shared_experts > 0) {
    out->Add("moe-shared-expert-intermediate-size", model.shared_experts * model.shared_expert_ffn_hidden);
    out->Flag("moe-shared-expert-gate", model.shared_expert_gate && framework != Framework::kMegatron015);
  }
  if (model.MoeLayers() == model.layers) return;
  out->Add("moe-layer-freq", LayerPattern(model.layers, [&](int64_t layer) { return model.IsMoeLayer(layer); }));
}

void LatentOptions(const ModelSpec& model, Arguments* out) {
  const planner::RopeNumerics& rope = model.numerics.rope;
  out->Flag("multi-latent-attention");
  out->AddIf(model.q_lora_rank > 0, "q-lora-rank", model.q_lora_rank);
  out->Add("kv-lora-rank", model.kv_lora_rank);
  out->Add("qk-head-dim", model.qk_nope_head_dim);
  out->Add("qk-pos-emb-head-dim", model.qk_rope_head_dim);
  out->Add("v-head-dim", model.v_head_dim);
  out->Flag("qk-layernorm");  // the norms of the latents
  if (rope.scaling == RopeScaling::kYarn) {
    out->Add("rotary-scaling-factor", rope.factor);
    out->Add("mscale", rope.mscale > 0 ? rope.mscale : 1);
    out->Add("mscale-all-dim", rope.mscale_all_dim);
  } else {
    out->Add("rope-type", "rope");
    out->Flag("no-rope-fusion");
  }
}

void AttentionOptions(const ModelSpec& model, Arguments* out) {
  out->Add("num-attention-heads", model.heads);
  if (model.attention == Attention::kLatent) return LatentOptions(model, out);
  out->Flag("group-query-attention", model.kv_heads < model.heads);
  out->AddIf(model.kv_heads < model.heads, "num-query-groups", model.kv_heads);
  out->Add("kv-channels", model.head_dim);
  out->Flag("qk-layernorm", model.query_key_norm);
  if (model.window_kind != planner::AttentionWindow::kSliding) return;
  // Tokens to the left and to the right that a query sees besides itself.
  out->Add("window-size", fmt::format("{},0", model.attention_window - 1));
  const bool all = std::all_of(model.local_layers.begin(), model.local_layers.end(), [](bool local) { return local; });
  if (!all) {
    out->Add("window-attn-skip-freq",
             LayerPattern(model.layers, [&](int64_t layer) { return model.IsLocalLayer(layer); }));
  }
}

void PositionOptions(const ModelSpec& model, int64_t sequence, Arguments* out) {
  const planner::RopeNumerics& rope = model.numerics.rope;
  out->Add("max-position-embeddings", std::max(model.max_positions, sequence));
  if (model.learned_positions) return out->Add("position-embedding-type", "learned_absolute");
  const bool yarn = rope.scaling == RopeScaling::kYarn && model.attention != Attention::kLatent;
  out->Add("position-embedding-type", yarn ? "yarn" : "rope");
  out->Add("rotary-base", static_cast<int64_t>(std::llround(rope.theta)));
  if (rope.fraction != 1) out->Add("rotary-percent", rope.fraction);
  out->Flag("rotary-interleaved", rope.interleaved && model.attention != Attention::kLatent);
  out->Flag("use-rope-scaling", rope.scaling == RopeScaling::kLlama3);
  if (rope.scaling == RopeScaling::kLinear) {
    out->Add("rotary-seq-len-interpolation-factor", static_cast<int64_t>(std::llround(rope.factor)));
  }
  if (!yarn) return;
  out->Add("rotary-scaling-factor", rope.factor);
  out->Add("yarn-original-max-position-embeddings", rope.original_positions > 0 ? rope.original_positions : model.max_positions);
  out->Add("yarn-beta-fast", rope.beta_fast);
  out->Add("yarn-beta-slow", rope.beta_slow);
}

void ModelOptions(const EmitRequest& request, Framework framework, Arguments* out) {
  const ModelSpec& model = request.job.model;
  out->Add("num-layers", model.layers);
  out->Add("hidden-size", model.hidden);
  out->AddIf(model.ffn_hidden > 0, "ffn-hidden-size", model.ffn_hidden);
  AttentionOptions(model, out);
  out->Add("seq-length", request.job.sequence);
  PositionOptions(model, request.job.sequence, out);
  out->Add("normalization", model.rms_norm ? "RMSNorm" : "LayerNorm");
  out->Add("norm-epsilon", model.numerics.norm_epsilon);
  out->Add("init-method-std", model.numerics.initializer_range);
  // The older NullTokenizer appends a token of its own.
  out->Add("vocab-size", framework == Framework::kMegatron015 ? model.vocab - 1 : model.vocab);
  out->Flag("swiglu", model.gated_mlp);
  out->Flag("squared-relu", !model.gated_mlp && model.numerics.activation == planner::Activation::kRelu2);
  out->Flag("no-bias-gelu-fusion", !model.gated_mlp && model.mlp_bias &&
                                       model.numerics.activation == planner::Activation::kRelu2);
  out->Flag("untie-embeddings-and-output-weights", !model.tied_embeddings);
  out->Flag("disable-bias-linear", !model.mlp_bias);
  out->Flag("add-qkv-bias", model.attention_bias && !model.mlp_bias);
  const bool drops = model.KeepsDropoutMasks();
  out->Add("attention-dropout", drops ? model.numerics.attention_dropout : 0.0);
  out->Add("hidden-dropout", drops ? model.numerics.hidden_dropout : 0.0);
  if (model.IsMoe()) ExpertOptions(model, framework, out);
}

void DegreeOptions(const EmitRequest& request, Arguments* out) {
  const Strategy& s = request.strategy;
  const ModelSpec& model = request.job.model;
  out->Add("tensor-model-parallel-size", s.tp);
  out->Add("pipeline-model-parallel-size", s.pp);
  out->Add("context-parallel-size", s.cp);
  if (model.IsMoe()) {
    out->Add("expert-model-parallel-size", s.ep);
    out->Add("expert-tensor-parallel-size", s.etp);
  }
  out->Flag("sequence-parallel", s.sequence_parallel);
  out->Flag("use-tp-pp-dp-mapping", s.rank_order == planner::RankOrder::kTpCpPpDp && s.pp > 1);
  if (s.cp > 1) {  // Transformer Engine's words
    const planner::ContextMode mode = s.context_mode;
    out->Add("cp-comm-type", mode == planner::ContextMode::kRing        ? "p2p"
                             : mode == planner::ContextMode::kAllGather ? "all_gather"
                                                                        : "a2a");
  }
  if (s.pp > 1 && model.layers % (s.pp * s.vpp) != 0) {
    out->Add("pipeline-model-parallel-layout", fmt::format("\"{}\"", MegatronLayout(model, s)));
  } else if (s.vpp > 1) {
    out->Add("num-layers-per-virtual-pipeline-stage", model.layers / (s.pp * s.vpp));
  }
}

void RecomputeOptions(const EmitRequest& request, Arguments* out) {
  const Strategy& s = request.strategy;
  if (s.recompute == planner::Recompute::kSelective) {
    const ModelSpec& model = request.job.model;
    out->Add("recompute-granularity", "selective");
    out->Add("recompute-modules", fmt::format("layernorm{}{}", model.IsMoe() ? " moe_act" : "",
                                              model.attention == Attention::kLatent ? " mla_up_proj" : ""));
  } else if (s.recompute == planner::Recompute::kFull && s.recompute_layers != 0) {
    out->Add("recompute-granularity", "full");
    out->Add("recompute-method", s.recompute_layers < 0 ? "uniform" : "block");
    // Of every chunk of a stage.
    out->Add("recompute-num-layers", s.recompute_layers < 0 ? 1 : s.recompute_layers / s.vpp);
  }
}

void BatchAndMemoryOptions(const EmitRequest& request, Framework framework, Arguments* out) {
  const Strategy& s = request.strategy;
  out->Add("micro-batch-size", s.micro_batch);
  out->Add("global-batch-size", request.job.global_batch);
  out->Flag("use-distributed-optimizer", s.zero_stage >= 1);
  if (s.zero_stage >= 1 && s.shard_group > 0 && s.shard_group < s.dp * s.cp) {
    out->Add("num-distributed-optimizer-instances", s.dp * s.cp / s.shard_group);
  }
  if (s.dp * s.cp > 1) {
    out->Flag("overlap-grad-reduce");
    out->Flag("overlap-param-gather", s.zero_stage >= 1);
    // Counts parameters; gradients are summed in fp32 (fp16: in fp16).
    const double gradient = request.job.precision == Precision::kFp16 ? 2 : 4;
    if (s.bucket_bytes != planner::DefaultBucket(framework, s, gradient)) {
      out->Add("ddp-bucket-size", std::max<int64_t>(1, s.bucket_bytes.count() / static_cast<int64_t>(gradient)));
    }
  }
  RecomputeOptions(request, out);
}

void PrecisionOptions(const EmitRequest& request, Arguments* out) {
  const Precision precision = request.job.precision;
  if (precision == Precision::kFp16) out->Flag("fp16");
  if (precision == Precision::kBf16 || precision == Precision::kFp8 || precision == Precision::kFp4) out->Flag("bf16");
  if (precision == Precision::kFp8) {
    // The default recipe, delayed scaling, excludes recomputing norms and activations.
    out->Add("fp8-format", "hybrid");
    out->Add("fp8-recipe", planner::IsBlackwell(request.cluster.device) ? "mxfp8" : "tensorwise");
  }
  if (precision == Precision::kFp4) {
    out->Add("fp4-format", "e2m1");
    out->Add("fp4-recipe", "nvfp4");
  }
  out->Flag("cross-entropy-loss-fusion");
}

}  // namespace

std::string MegatronLayout(const ModelSpec& model, const Strategy& s) {
  std::string layout = "E";
  for (int64_t chunk = 0; chunk < s.pp * s.vpp; ++chunk) {
    const int64_t layers = planner::StageLayers(model.layers, s.pp * s.vpp, chunk);
    if (chunk > 0) layout += "|";
    if (layers > 0) layout += fmt::format("t*{}", layers);
  }
  return layout + "L";
}

Result<std::string> EmitMegatron(const EmitRequest& request) {
  const Framework framework = FrameworkOf(EmitTarget::kMegatron, request);
  Arguments out;
  ModelOptions(request, framework, &out);
  DegreeOptions(request, &out);
  BatchAndMemoryOptions(request, framework, &out);
  PrecisionOptions(request, &out);
  return fmt::format("# {}\n", PlanSummary(request)) + out.text();
}

}  // namespace weft::formats

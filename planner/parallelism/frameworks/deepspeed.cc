// DeepSpeed, releases v0.18.9 and v0.19.5, with a Hugging Face model: ZeRO, AutoTP, Ulysses and AutoEP from the JSON file.
// Pipelines and native experts want a model written for them and are not described. Paths are of
// github.com/deepspeedai/DeepSpeed, below deepspeed/.
#include <fmt/format.h>

#include "planner/parallelism/framework.h"

namespace weft::planner::frameworks {
namespace {

using Question = FrameworkQuestion;

bool AutoEpKnows(const ModelSpec& m) {
  return m.architecture == Architecture::kMixtral || m.architecture == Architecture::kQwenMoe ||
         m.architecture == Architecture::kDeepSeek;
}

constexpr FrameworkRule kRules[] = {
    {"model", [](const Question& q) { return HuggingFaceLacks(q.job.model) != nullptr; },
     [](const Question& q) { return fmt::format("model {}: {}", q.job.model.name, HuggingFaceLacks(q.job.model)); },
     "Hugging Face Trainer", SearchStage::kJob},
    {"tensor-mode", [](const Question& q) { return q.strategy.tensor_mode != TensorMode::k1D; },
     [](const Question& q) { return fmt::format("tensor mode {}, expected 1d", TensorModeName(q.strategy.tensor_mode)); },
     "module_inject/auto_tp.py"},
    {"pipeline", [](const Question& q) { return q.strategy.pp > 1; },
     [](const Question& q) {
       return fmt::format("pp={}, expected 1: no key of the JSON file makes a pipeline, and a Hugging Face model does not run "
                          "under PipelineModule", q.strategy.pp);
     },
     "runtime/pipe/engine.py; runtime/config.py"},
    {"operators", [](const Question& q) { return q.strategy.sharding != Sharding::kUniform; },
     [](const Question&) { return std::string("sharding osdp, expected uniform"); }, "runtime/zero/config.py", SearchStage::kExchange},
    {"gradient-exchange", [](const Question& q) { return q.strategy.data_sync != DataSync::kRing; },
     [](const Question& q) {
       return fmt::format("gradient exchange {}, expected ring", DataSyncName(q.strategy.data_sync));
     },
     "runtime/zero/stage_1_and_2.py", SearchStage::kExchange},
    {"shard-group",
     [](const Question& q) {
       return q.strategy.shard_group != 0 && q.strategy.shard_group != q.strategy.dp * q.strategy.cp;
     },
     [](const Question& q) {
       return fmt::format("shard_group={}, expected shards over all {} replicas: MiCS wants the model built under MiCS_Init",
                          q.strategy.shard_group, q.strategy.dp * q.strategy.cp);
     },
     "runtime/zero/mics.py", SearchStage::kExchange},
    {"kept-parameters", [](const Question& q) { return q.strategy.zero_stage == 3 && q.strategy.keep_after_forward; },
     [](const Question&) {
       return std::string("keep_after_forward=true, expected false: stage 3 releases by its own limits");
     },
     "runtime/zero/config.py, stage3_max_live_parameters", SearchStage::kExchange},
    {"tensor-sequence", [](const Question& q) { return q.strategy.sequence_parallel; },
     [](const Question&) {
       return std::string("sequence_parallel=true, expected false: AutoTP keeps norms and residuals whole on every rank");
     },
     "module_inject/layers.py"},
    {"tensor-context", [](const Question& q) { return q.strategy.tp > 1 && q.strategy.cp > 1; },
     [](const Question& q) {
       return fmt::format("tp={} with cp={}, expected one of them to be 1", q.strategy.tp, q.strategy.cp);
     },
     "runtime/engine.py: AutoTP and Ulysses each bring a process grid of their own"},
    {"context-mode",
     [](const Question& q) { return q.strategy.cp > 1 && q.strategy.context_mode != ContextMode::kUlysses; },
     [](const Question& q) {
       return fmt::format("context mode {}, expected ulysses", ContextModeName(q.strategy.context_mode));
     },
     "runtime/sequence_parallel/ulysses_sp.py"},
    {"context-heads",
     [](const Question& q) {
       const int64_t kv = q.job.model.kv_heads, cp = q.strategy.cp;
       return cp > 1 && (q.job.model.attention == Attention::kLatent || (kv % cp != 0 && cp % kv != 0));
     },
     [](const Question& q) {
       return fmt::format("cp={} with {} key/value heads, expected one to divide the other", q.strategy.cp,
                          q.job.model.kv_heads);
     },
     "runtime/sequence_parallel/ulysses_sp.py"},
    {"context-attention",
     [](const Question& q) { return q.strategy.cp > 1 && (!q.job.model.causal || q.job.model.window_kind != AttentionWindow::kNone); },
     [](const Question& q) {
       return fmt::format("cp={} of a model with windows or without a causal mask, expected 1: Ulysses drops the mask",
                          q.strategy.cp);
     },
     "runtime/sequence_parallel/ulysses_sp.py"},
    {"experts",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.etp != 1 || (s.ep > 1 && (s.cp > 1 || s.zero_stage > 2));
     },
     [](const Question& q) {
       return fmt::format("ep={} etp={} cp={} zero_stage={}, expected etp=1, and cp=1 and at most ZeRO-2 with AutoEP",
                          q.strategy.ep, q.strategy.etp, q.strategy.cp, q.strategy.zero_stage);
     },
     "module_inject/auto_ep_folding.py of v0.19.5", SearchStage::kExchange},
    {"recompute",
     [](const Question& q) {
       return q.strategy.recompute == Recompute::kSelective ||
              (q.strategy.recompute == Recompute::kFull && q.strategy.recompute_layers >= 0);
     },
     [](const Question& q) {
       return fmt::format("recompute {}{}, expected none or full for all layers: gradient_checkpointing of Hugging Face has no "
                          "other choice, and the JSON section alone does nothing",
                          q.strategy.recompute == Recompute::kSelective ? "selective" : "full",
                          q.strategy.recompute_layers >= 0 ? fmt::format(" for {} layers", q.strategy.recompute_layers) : "");
     },
     "runtime/activation_checkpointing/checkpointing.py: read by models that call it only", SearchStage::kRecompute},
    {"precision",
     [](const Question& q) { return q.job.precision == Precision::kFp8 || q.job.precision == Precision::kFp4; },
     [](const Question& q) {
       return fmt::format("precision {}, expected bf16, fp16 or fp32", PrecisionName(q.job.precision));
     },
     "runtime/precision_config.py", SearchStage::kJob},
};

constexpr FrameworkRule kNewer[] = {
    {"expert-family-019",
     [](const Question& q) { return q.strategy.ep > 1 && !AutoEpKnows(q.job.model); },
     [](const Question& q) {
       return fmt::format("ep={} of {}, expected 1: AutoEP has presets for mixtral, qwen2_moe, qwen3_moe, deepseek_v2 and "
                          "deepseek_v3", q.strategy.ep, q.job.model.name);
     },
     "module_inject/auto_ep_presets of v0.19.5"},
};
constexpr FrameworkRule kOlder[] = {
    {"tensor-zero", [](const Question& q) { return q.strategy.tp > 1 && q.strategy.zero_stage > 2; },
     [](const Question& q) {
       return fmt::format("zero_stage=3 with tp={}, expected 0 to 2 with AutoTP", q.strategy.tp);
     },
     "runtime/engine.py: asserted in v0.18.9", SearchStage::kExchange},
    {"experts-018", [](const Question& q) { return q.strategy.ep > 1; },
    [](const Question& q) { return fmt::format("ep={}, expected 1: AutoEP came with v0.19", q.strategy.ep); },
    "runtime/config.py of v0.18.9: the section expert_parallel is not read"},
};

}  // namespace

std::span<const FrameworkRule> DeepspeedRules() { return kRules; }
std::span<const FrameworkRule> DeepspeedNewerRules() { return kNewer; }
std::span<const FrameworkRule> DeepspeedOlderRules() { return kOlder; }

}  // namespace weft::planner::frameworks

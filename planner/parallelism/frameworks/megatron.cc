// Megatron-LM, releases core_v0.15.3 and core_v0.19.0, under pretrain_gpt.py with Transformer Engine; Megatron-Bridge runs
// the same core. Paths in sources are of github.com/NVIDIA/Megatron-LM.
#include <fmt/format.h>

#include "planner/parallelism/framework.h"

namespace weft::planner::frameworks {
namespace {

using Question = FrameworkQuestion;

bool IsTransformer(const Question& q) { return !q.job.model.IsCnn(); }

/// Ranks that hold one copy of a layer's experts; of a dense model tp, which is what Megatron takes for it.
int64_t ExpertRanks(const Question& q) {
  return q.job.model.IsMoe() ? q.strategy.ep * q.strategy.etp : q.strategy.tp;
}

/// Replicas of the optimizer's expert grid.
int64_t ExpertReplicas(const Question& q) {
  const Strategy& s = q.strategy;
  return s.tp * s.cp * s.dp / ExpertRanks(q);
}

constexpr FrameworkRule kRules[] = {
    {"model", [](const Question& q) { return !IsTransformer(q) || MegatronLacks(q.job.model) != nullptr; },
     [](const Question& q) {
       return IsTransformer(q) ? fmt::format("model {}: {}", q.job.model.name, MegatronLacks(q.job.model))
                               : std::string("a 3D CNN, expected a transformer");
     },
     "pretrain_gpt.py and megatron/training/arguments.py", SearchStage::kJob},
    {"tensor-mode", [](const Question& q) { return q.strategy.tensor_mode != TensorMode::k1D; },
     [](const Question& q) { return fmt::format("tensor mode {}, expected 1d", TensorModeName(q.strategy.tensor_mode)); },
     "megatron/core/tensor_parallel/layers.py"},
    {"zero-stage", [](const Question& q) { return q.strategy.zero_stage > 1 || q.strategy.sharding != Sharding::kUniform; },
     [](const Question& q) {
       return q.strategy.sharding != Sharding::kUniform
                  ? std::string("sharding osdp, expected uniform")
                  : fmt::format("zero_stage={}, expected 0 or 1 (--use-distributed-optimizer)", q.strategy.zero_stage);
     },
     "megatron/training/arguments.py: Megatron-FSDP wants a checkpoint format and an environment of its own and is not "
     "described here", SearchStage::kExchange},
    {"gradient-exchange", [](const Question& q) { return q.strategy.data_sync != DataSync::kRing; },
     [](const Question& q) {
       return fmt::format("gradient exchange {}, expected ring: the algorithm is NCCL's choice",
                          DataSyncName(q.strategy.data_sync));
     },
     "megatron/core/distributed/param_and_grad_buffer.py", SearchStage::kExchange},
    {"schedule",
     [](const Question& q) {
       return q.strategy.pp > 1 && q.strategy.schedule != ScheduleKind::k1F1B &&
              q.strategy.schedule != ScheduleKind::kInterleaved;
     },
     [](const Question& q) {
       return fmt::format("schedule {}, expected 1f1b or interleaved", ScheduleName(q.strategy.schedule));
     },
     "megatron/core/pipeline_parallel/schedules.py, get_forward_backward_func", SearchStage::kSchedule},
    {"interleaved-batches",
     [](const Question& q) {
       return q.strategy.vpp > 1 && MicroBatches(q.strategy, q.job.global_batch) % q.strategy.pp != 0;
     },
     [](const Question& q) {
       return fmt::format("{} micro-batches with vpp={}, expected a multiple of pp={}",
                          MicroBatches(q.strategy, q.job.global_batch), q.strategy.vpp, q.strategy.pp);
     },
     "megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving", SearchStage::kSchedule},
    // A second grid over the same ranks holds the experts (of a dense model: the same layers without cp). With pipeline
    // ranks inside the data-parallel ones the stages of both agree only if both have as many data-parallel ranks.
    {"expert-order",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.rank_order == RankOrder::kTpCpPpDp && s.pp > 1 && ExpertRanks(q) != s.tp * s.cp;
     },
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return fmt::format("rank_order=tp-cp-pp-dp with pp={}, expected tp-cp-ep-dp-pp: attention has {} data-parallel ranks, "
                          "{} {}, and without the pp-last order both must agree",
                          s.pp, s.dp, q.job.model.IsMoe() ? "experts" : "without cp", s.tp * s.cp * s.dp / ExpertRanks(q));
     },
     "megatron/core/parallel_state.py, initialize_model_parallel, both releases", SearchStage::kSchedule},
    {"expert-sequence",
     [](const Question& q) { return q.job.model.IsMoe() && q.strategy.tp > 1 && !q.strategy.sequence_parallel; },
     [](const Question& q) {
       return fmt::format("experts with tp={} and no sequence parallelism, expected sequence_parallel=true", q.strategy.tp);
     },
     "megatron/core/transformer/moe/moe_layer.py: training of experts with tp wants sequence parallelism"},
    {"expert-bias",
     [](const Question& q) { return q.job.model.IsMoe() && q.job.model.mlp_bias && q.strategy.etp > 1; },
     [](const Question& q) { return fmt::format("experts with biases and etp={}, expected etp=1", q.strategy.etp); },
     "megatron/core/transformer/transformer_config.py, __post_init__"},
    {"optimizer-instances",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       const int64_t instances = s.shard_group > 0 ? s.dp * s.cp / s.shard_group : 1;
       return instances > 1 && (s.zero_stage != 1 || ExpertReplicas(q) % instances != 0);
     },
     [](const Question& q) {
       return fmt::format("shard_group={} makes {} instances of the optimizer, expected zero_stage=1 and a divisor of the {} "
                          "replicas of a layer's experts",
                          q.strategy.shard_group, q.strategy.dp * q.strategy.cp / q.strategy.shard_group, ExpertReplicas(q));
     },
     "megatron/core/parallel_state.py: groups of the distributed optimizer's instances", SearchStage::kExchange},
    {"context-sequence",
     [](const Question& q) { return q.strategy.cp > 1 && q.job.sequence % (2 * q.strategy.cp) != 0; },
     [](const Question& q) {
       return fmt::format("cp={} with {} tokens, expected a sequence that 2 cp divides", q.strategy.cp, q.job.sequence);
     },
     "megatron/training/arguments.py, validate_args"},
    {"context-latent",
     [](const Question& q) {
       return q.strategy.cp > 1 && q.job.model.attention == Attention::kLatent && q.strategy.context_mode != ContextMode::kRing;
     },
     [](const Question& q) {
       return fmt::format("context mode {} with latent attention, expected ring", ContextModeName(q.strategy.context_mode));
     },
     "Transformer Engine before 2.15: latent attention goes by p2p"},
    {"context-precision", [](const Question& q) { return q.strategy.cp > 1 && q.job.precision == Precision::kFp32; },
     [](const Question& q) { return fmt::format("cp={} in fp32, expected cp=1 or 16 bits: attention is unfused then", q.strategy.cp); },
     "Transformer Engine: context parallelism wants fused attention"},
    {"expert-device", [](const Question& q) { return q.job.model.IsMoe() && !q.cluster.device.Supports(Precision::kBf16); },
     [](const Question& q) { return fmt::format("experts on {}, expected a device that has bf16: grouped products want it", q.cluster.device.name); },
     "megatron/training/arguments.py, validate_args: --moe-grouped-gemm wants compute capability 8.0", SearchStage::kJob},
    {"context-window",
     [](const Question& q) {
       return q.strategy.cp > 1 && q.job.model.window_kind == AttentionWindow::kSliding &&
              q.strategy.context_mode == ContextMode::kRing;
     },
     [](const Question& q) {
       return fmt::format("context mode ring with a sliding window of {}, expected all-gather or ulysses",
                          q.job.model.attention_window);
     },
     "Transformer Engine: windows go with all_gather or a2a only"},
    {"context-ulysses",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.cp > 1 && s.context_mode == ContextMode::kUlysses &&
              (q.job.model.attention == Attention::kLatent || q.job.model.kv_heads % (s.tp * s.cp) != 0);
     },
     [](const Question& q) {
       return fmt::format("context mode ulysses with tp={} cp={}, expected tp x cp to divide {} key/value heads",
                          q.strategy.tp, q.strategy.cp, q.job.model.kv_heads);
     },
     "Transformer Engine, attention over a2a: heads of a tensor-parallel rank are dealt to the context-parallel ones"},
    {"sequence-tensor",
     [](const Question& q) {
       return q.strategy.sequence_parallel && q.job.sequence % (q.strategy.tp * q.strategy.cp) != 0;
     },
     [](const Question& q) {
       return fmt::format("sequence_parallel with tp={} cp={}, expected their product to divide {} tokens", q.strategy.tp,
                          q.strategy.cp, q.job.sequence);
     },
     "megatron/core/tensor_parallel/mappings.py"},
    {"recompute-selective",
     [](const Question& q) {
       const bool cheap = q.job.model.IsMoe() || q.job.model.attention == Attention::kLatent;
       return q.strategy.recompute == Recompute::kSelective && !cheap;
     },
     [](const Question&) {
       return std::string("recompute selective of a dense model, expected none or full: fused attention keeps no scores, and "
                          "Transformer Engine fuses the norms into the products, so that no module of "
                          "--recompute-modules frees cheap memory");
     },
     "megatron/core/transformer/transformer_layer.py and models/gpt/gpt_layer_specs.py: the norms of a dense layer are no "
     "modules of their own", SearchStage::kRecompute},
    {"recompute-partly",
     [](const Question& q) { return q.strategy.recompute == Recompute::kSelective && q.strategy.recompute_layers >= 0; },
     [](const Question& q) {
       return fmt::format("recompute selective of {} layers, expected all: --recompute-modules counts for every layer",
                          q.strategy.recompute_layers);
     },
     "megatron/training/arguments.py, validate_args", SearchStage::kRecompute},
    {"stage-layers",
     [](const Question& q) { return q.strategy.pp * q.strategy.vpp > q.job.model.layers; },
     [](const Question& q) {
       return fmt::format("pp={} x vpp={} chunks of {} layers, expected a layer for each", q.strategy.pp, q.strategy.vpp,
                          q.job.model.layers);
     },
     "megatron/core/transformer/pipeline_parallel_layer_layout.py", SearchStage::kSchedule},
    {"precision", [](const Question& q) { return q.job.precision == Precision::kTf32; },
     [](const Question&) { return std::string("precision tf32, expected bf16, fp16, fp32, fp8 or fp4"); },
     "megatron/training/arguments.py", SearchStage::kJob},
};

// Release core_v0.15.3 alone.
constexpr FrameworkRule kOlder[] = {
    {"query-groups-015",
     [](const Question& q) {
       return q.job.model.attention == Attention::kGroupedQuery && q.job.model.kv_heads % q.strategy.tp != 0;
     },
     [](const Question& q) {
       return fmt::format("tp={} with {} key/value heads, expected a divisor", q.strategy.tp, q.job.model.kv_heads);
     },
     "megatron/core/transformer/transformer_config.py, __post_init__ of core_v0.15.3"},
    {"shared-gate-015", [](const Question& q) { return q.job.model.shared_expert_gate; },
     [](const Question&) { return std::string("a gate on the shared experts, expected a model without"); },
     "megatron/core/models/gpt/moe_module_specs.py of core_v0.15.3", SearchStage::kJob},
    {"fp16-experts-015",
     [](const Question& q) { return q.job.model.IsMoe() && q.job.precision != Precision::kBf16 && q.job.precision != Precision::kFp8; },
     [](const Question& q) {
       return fmt::format("experts in {}, expected bf16 or fp8: grouped products need them", PrecisionName(q.job.precision));
     },
     "megatron/training/arguments.py of core_v0.15.3", SearchStage::kJob},
    {"yarn-015",
     [](const Question& q) {
       return q.job.model.numerics.rope.scaling == RopeScaling::kYarn && q.job.model.attention != Attention::kLatent;
     },
     [](const Question&) { return std::string("yarn rotations without latent attention, expected core_v0.19.0"); },
     "megatron/training/arguments.py of core_v0.15.3", SearchStage::kJob},
};

constexpr EnvironmentSetting kEnvironment[] = {
    {"CUDA_DEVICE_MAX_CONNECTIONS", "1",
     [](const Question& q) { return (q.strategy.tp > 1 || q.strategy.cp > 1) && !IsBlackwell(q.cluster.device); },
     "communication is launched before the product that hides it; asserted for tp > 1 or cp > 1 before Blackwell",
     "megatron/training/arguments.py, validate_args"},
};

}  // namespace

std::span<const FrameworkRule> MegatronRules() { return kRules; }
std::span<const FrameworkRule> MegatronOlderRules() { return kOlder; }
std::span<const EnvironmentSetting> MegatronEnvironment() { return kEnvironment; }

}  // namespace weft::planner::frameworks

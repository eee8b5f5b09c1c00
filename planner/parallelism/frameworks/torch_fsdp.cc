// torchtitan, releases v0.2.0 and v0.2.2, and Accelerate with FSDP2, releases v1.10.1 and v1.14.0. Both shard with
// torch.distributed.fsdp.fully_shard. Paths are of github.com/pytorch/torchtitan and github.com/huggingface/accelerate.
#include <fmt/format.h>

#include <algorithm>

#include "planner/parallelism/framework.h"

namespace weft::planner::frameworks {
namespace {

using Question = FrameworkQuestion;

bool IsTorchtitanPrecision(Precision p) { return p == Precision::kBf16 || p == Precision::kFp8 || p == Precision::kFp32; }

// What FSDP2 itself says, whoever calls it.
constexpr FrameworkRule kOneDimensional = {
    "tensor-mode", [](const Question& q) { return q.strategy.tensor_mode != TensorMode::k1D || q.job.model.IsCnn(); },
    [](const Question& q) {
      return q.job.model.IsCnn() ? std::string("a 3D CNN, expected a transformer")
                                 : fmt::format("tensor mode {}, expected 1d", TensorModeName(q.strategy.tensor_mode));
    },
    "torch.distributed.tensor.parallel"};
constexpr FrameworkRule kExchange = {
    "gradient-exchange", [](const Question& q) { return q.strategy.data_sync != DataSync::kRing; },
    [](const Question& q) {
      return fmt::format("gradient exchange {}, expected ring", DataSyncName(q.strategy.data_sync));
    },
    "torch.distributed.fsdp: reduce-scatter by NCCL", SearchStage::kExchange};
constexpr FrameworkRule kStages = {
    "zero-stage", [](const Question& q) { return q.strategy.zero_stage == 1 || q.strategy.zero_stage == 2; },
    [](const Question& q) {
      return fmt::format("zero_stage={}, expected 0 (replicas) or 3, with keep_after_forward=true where parameters stay: FSDP2 "
                         "always shards parameters, gradients and optimizer together",
                         q.strategy.zero_stage);
    },
    "torch.distributed.fsdp.fully_shard", SearchStage::kExchange};
constexpr FrameworkRule kDdp = {
    "replicas-alone",
    [](const Question& q) {
      const Strategy& s = q.strategy;
      return s.zero_stage == 0 && s.dp * s.cp > 1 && (s.tp > 1 || s.pp > 1 || s.cp > 1 || s.ep > 1);
    },
    [](const Question& q) {
      const Strategy& s = q.strategy;
      return fmt::format("zero_stage=0 with dp={} tp={} pp={} cp={}, expected zero_stage=3: plain replicas go with no other "
                         "degree", s.dp, s.tp, s.pp, s.cp);
    },
    "torchtitan/models/llama3/infra/parallelize.py: DDP has no second dimension", SearchStage::kExchange};
constexpr FrameworkRule kShardGroup = {
    "shard-group",
    [](const Question& q) {
      const Strategy& s = q.strategy;
      if (s.zero_stage == 3 && (s.shard_group == 1 || s.dp * s.cp == 1)) return true;
      return s.shard_group > 0 && (s.zero_stage != 3 || s.shard_group % s.cp != 0 || s.dp % (s.shard_group / s.cp) != 0);
    },
    [](const Question& q) {
      return fmt::format("zero_stage={} shard_group={} with dp={} cp={}, expected at least two shards, a multiple of cp whose "
                         "quotient divides dp", q.strategy.zero_stage, q.strategy.shard_group, q.strategy.dp, q.strategy.cp);
    },
    "torchtitan/distributed/parallel_dims.py: shards are dp_shard x cp", SearchStage::kExchange};

constexpr FrameworkRule kTorchtitan[] = {
    kOneDimensional,
    {"model", [](const Question& q) { return TorchtitanFamily(q.job.model).empty(); },
     [](const Question& q) {
       return fmt::format("model {}: none of torchtitan's llama3, qwen3 and deepseek_v3 has its layers", q.job.model.name);
     },
     "torchtitan/models", SearchStage::kJob},
    kStages,
    kDdp,
    kExchange,
    kShardGroup,
    {"shards-for-16-bit",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.dp * s.cp == 1 && s.tp * s.pp > 1 && StorageBytes(q.job.precision) == 2;
     },
     [](const Question& q) {
       return fmt::format("dp=1 with tp={} pp={}, expected at least two shards: without FSDP torchtitan switches mixed precision "
                          "off and computes in fp32", q.strategy.tp, q.strategy.pp);
     },
     "torchtitan/distributed/utils.py, maybe_enable_amp"},
    {"operators", [](const Question& q) { return q.strategy.sharding != Sharding::kUniform; },
     [](const Question&) {
       return std::string("sharding osdp, expected uniform: no key of the file shards one module otherwise than another");
     },
     "torchtitan/config/job_config.py", SearchStage::kExchange},
    {"schedule",
     [](const Question& q) {
       const ScheduleKind kind = q.strategy.schedule;
       return q.strategy.pp > 1 && (kind == ScheduleKind::kEager1F1B || kind == ScheduleKind::kZbH1 ||
                                    kind == ScheduleKind::kZbH2);
     },
     [](const Question& q) {
       return fmt::format("schedule {}, expected gpipe, 1f1b, interleaved or zb-v", ScheduleName(q.strategy.schedule));
     },
     "torch.distributed.pipelining.schedules, get_schedule_class", SearchStage::kSchedule},
    {"pipeline-model", [](const Question& q) { return q.strategy.pp > 1 && TorchtitanFamily(q.job.model) == "qwen3"; },
     [](const Question& q) { return fmt::format("pp={} of family qwen3, expected pp=1: it has no pipeline", q.strategy.pp); },
     "torchtitan/models/qwen3/__init__.py: pipelining_fn is None"},
    {"pipeline-batches",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       const int64_t m = MicroBatches(s, q.job.global_batch);
       if (s.pp == 1) return false;
       if (s.vpp == 1) return m < s.pp;
       return s.schedule == ScheduleKind::kInterleaved && m % std::max<int64_t>(1, m / s.pp) != 0;
     },
     [](const Question& q) {
       return fmt::format("{} micro-batches with pp={} vpp={}, expected at least pp, and a multiple of pp where interleaved",
                          MicroBatches(q.strategy, q.job.global_batch), q.strategy.pp, q.strategy.vpp);
     },
     "torch.distributed.pipelining.schedules", SearchStage::kSchedule},
    {"pipeline-chunks", [](const Question& q) { return q.strategy.vpp > 3; },
     [](const Question& q) {
       return fmt::format("vpp={}, expected at most 3: of more chunks the pipeline's runtime keeps only three whole, and gathers "
                          "the others over and over", q.strategy.vpp);
     },
     "torch.distributed.pipelining.schedules, _add_unshard_reshard", SearchStage::kSchedule},
    {"stage-layers", [](const Question& q) { return q.strategy.pp * q.strategy.vpp > q.job.model.layers; },
     [](const Question& q) {
       return fmt::format("pp={} x vpp={} stages of {} layers, expected a layer for each", q.strategy.pp, q.strategy.vpp,
                          q.job.model.layers);
     },
     "torchtitan/distributed/pipeline_parallel.py", SearchStage::kSchedule},
    {"rank-order", [](const Question& q) { return q.strategy.rank_order != RankOrder::kTpCpEpDpPp; },
     [](const Question&) { return std::string("rank_order=tp-cp-pp-dp, expected tp-cp-ep-dp-pp: stages lie outermost"); },
     "torchtitan/distributed/parallel_dims.py, build_mesh", SearchStage::kSchedule},
    {"tensor-heads",
     [](const Question& q) {
       return q.job.model.attention != Attention::kLatent && q.job.model.kv_heads % q.strategy.tp != 0;
     },
     [](const Question& q) {
       return fmt::format("tp={} with {} key/value heads, expected a divisor", q.strategy.tp, q.job.model.kv_heads);
     },
     "torchtitan/models/llama3/model/model.py: heads of a rank are a view of its share of the columns"},
    {"v-schedule",
     [](const Question& q) {
       return q.strategy.schedule == ScheduleKind::kZbV && q.job.model.layers % (2 * q.strategy.pp) != 0;
     },
     [](const Question& q) {
       return fmt::format("schedule zb-v with pp={} of {} layers, expected 2 pp to divide them: else stages are not alike",
                          q.strategy.pp, q.job.model.layers);
     },
     "torch.distributed.pipelining.schedules: rank r holds chunks r and 2 pp - 1 - r", SearchStage::kSchedule},
    {"tensor-sequence", [](const Question& q) { return q.strategy.tp > 1 && !q.strategy.sequence_parallel; },
     [](const Question& q) {
       return fmt::format("tp={} without sequence parallelism, expected sequence_parallel=true", q.strategy.tp);
     },
     "torchtitan/models/llama3/infra/parallelize.py, apply_tp"},
    {"sequence-length",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return q.job.sequence % (2 * s.tp * s.cp) != 0;
     },
     [](const Question& q) {
       return fmt::format("tp={} cp={} with {} tokens, expected tp x 2 cp to divide the sequence", q.strategy.tp,
                          q.strategy.cp, q.job.sequence);
     },
     "torchtitan/distributed/parallel_dims.py, seq_len_divisor"},
    {"experts",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       if (!q.job.model.IsMoe()) return false;
       const int64_t shards = s.shard_group > 0 ? s.shard_group : s.dp * s.cp;
       const bool folded = s.etp == s.tp || s.etp == 1;
       return !folded || (s.ep > 1 && (shards * s.tp) % (s.ep * s.etp) != 0) || (s.ep == 1 && s.etp != s.tp);
     },
     [](const Question& q) {
       return fmt::format("ep={} etp={} with tp={}, expected etp=1 or tp, etp=tp where ep=1, and experts over the shards of one "
                          "copy", q.strategy.ep, q.strategy.etp, q.strategy.tp);
     },
     "torchtitan/distributed/parallel_dims.py: the expert mesh is dp_replicate, efsdp, ep, etp", SearchStage::kExchange},
    {"expert-context", [](const Question& q) { return q.job.model.attention == Attention::kLatent && q.strategy.cp > 1; },
     [](const Question& q) { return fmt::format("cp={} with latent attention, expected 1", q.strategy.cp); },
     "torchtitan/models/deepseek_v3"},
    {"recompute-partly",
     [](const Question& q) { return q.strategy.recompute == Recompute::kSelective && q.strategy.recompute_layers >= 0; },
     [](const Question& q) {
       return fmt::format("recompute selective of {} layers, expected all", q.strategy.recompute_layers);
     },
     "torchtitan/distributed/activation_checkpoint.py", SearchStage::kRecompute},
    {"precision", [](const Question& q) { return !IsTorchtitanPrecision(q.job.precision); },
     [](const Question& q) {
       return fmt::format("precision {}, expected bf16, fp8 or fp32", PrecisionName(q.job.precision));
     },
     "torchtitan/config/job_config.py", SearchStage::kJob},
};

constexpr FrameworkRule kAccelerate[] = {
    kOneDimensional,
    {"model", [](const Question& q) { return HuggingFaceLacks(q.job.model) != nullptr; },
     [](const Question& q) { return fmt::format("model {}: {}", q.job.model.name, HuggingFaceLacks(q.job.model)); },
     "transformers", SearchStage::kJob},
    {"degrees", [](const Question& q) { return q.strategy.tp > 1 || q.strategy.cp > 1; },
     [](const Question& q) {
       return fmt::format("tp={} cp={}, expected 1: the file alone splits neither; the model must be loaded with a tp_plan, and the "
                          "training script must wrap each step for context parallelism", q.strategy.tp, q.strategy.cp);
     },
     "accelerate/accelerator.py, maybe_context_parallel; parallelism_config.py"},
    kStages,
    kExchange,
    kShardGroup,
    {"operators", [](const Question& q) { return q.strategy.sharding != Sharding::kUniform; },
     [](const Question&) { return std::string("sharding osdp, expected uniform"); },
     "accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin", SearchStage::kExchange},
    {"pipeline", [](const Question& q) { return q.strategy.pp > 1; },
     [](const Question& q) { return fmt::format("pp={}, expected 1", q.strategy.pp); },
     "accelerate/parallelism_config.py"},
    {"experts",
     [](const Question& q) {
       return q.job.model.IsMoe() && (q.strategy.ep > 1 || q.strategy.etp != q.strategy.tp);
     },
     [](const Question& q) {
       return fmt::format("ep={} etp={}, expected ep=1 and etp=tp={}", q.strategy.ep, q.strategy.etp, q.strategy.tp);
     },
     "accelerate/parallelism_config.py"},
    {"recompute",
     [](const Question& q) {
       return q.strategy.recompute == Recompute::kSelective ||
              (q.strategy.recompute == Recompute::kFull && q.strategy.recompute_layers >= 0);
     },
     [](const Question&) {
       return std::string("recompute in part, expected none or full: fsdp_activation_checkpointing wraps every layer");
     },
     "accelerate/utils/fsdp_utils.py, fsdp2_apply_ac", SearchStage::kRecompute},
    {"precision", [](const Question& q) { return !IsTorchtitanPrecision(q.job.precision) && q.job.precision != Precision::kFp16; },
     [](const Question& q) {
       return fmt::format("precision {}, expected bf16, fp16, fp8 or fp32", PrecisionName(q.job.precision));
     },
     "accelerate/utils/constants.py", SearchStage::kJob},
};

// v0.2.2 takes no notice of context_parallel_rotate_method in training; v0.2.0 does.
constexpr FrameworkRule kTorchtitanNewer[] = {
    {"context-mode-022",
     [](const Question& q) { return q.strategy.cp > 1 && q.strategy.context_mode != ContextMode::kAllGather; },
     [](const Question& q) {
       return fmt::format("context mode {}, expected all-gather", ContextModeName(q.strategy.context_mode));
     },
     "torchtitan/distributed/context_parallel.py of v0.2.2"},
    {"expert-shards-022",
     [](const Question& q) { return q.strategy.ep > 1 && q.strategy.dp * q.strategy.cp == 1; },
     [](const Question& q) { return fmt::format("ep={} with dp=1, expected shards to take experts from", q.strategy.ep); },
     "torchtitan/distributed/parallel_dims.py of v0.2.2, get_mesh"},
};
constexpr FrameworkRule kTorchtitanOlder[] = {
    {"context-mode-020",
     [](const Question& q) { return q.strategy.cp > 1 && q.strategy.context_mode == ContextMode::kUlysses; },
     [](const Question&) { return std::string("context mode ulysses, expected ring or all-gather"); },
     "torchtitan/train.py of v0.2.0"},
    {"experts-020",
     [](const Question& q) {
       const Strategy& s = q.strategy;
       return s.ep > 1 && (s.etp == s.tp ? s.ep % s.cp != 0 : s.ep % (s.cp * s.tp) != 0);
     },
     [](const Question& q) {
       return fmt::format("ep={} etp={} with cp={} tp={}, expected a multiple of cp (etp=tp) or of cp x tp (etp=1)",
                          q.strategy.ep, q.strategy.etp, q.strategy.cp, q.strategy.tp);
     },
     "torchtitan/distributed/parallel_dims.py of v0.2.0"},
    {"router-groups-020", [](const Question& q) { return q.job.model.numerics.router.groups > 1; },
     [](const Question&) { return std::string("a router with groups of experts, expected v0.2.2"); },
     "torchtitan/models/moe/moe.py of v0.2.0", SearchStage::kJob},
};

constexpr EnvironmentSetting kEnvironment[] = {
    {"PYTORCH_ALLOC_CONF", "expandable_segments:True", [](const Question&) { return true; },
     "less fragmentation of the caching allocator, as torchtitan's own start script has it", "torchtitan/run_train.sh"},
};

}  // namespace

std::span<const FrameworkRule> TorchtitanRules() { return kTorchtitan; }
std::span<const FrameworkRule> TorchtitanNewerRules() { return kTorchtitanNewer; }
std::span<const FrameworkRule> TorchtitanOlderRules() { return kTorchtitanOlder; }
std::span<const FrameworkRule> AccelerateRules() { return kAccelerate; }
std::span<const EnvironmentSetting> TorchEnvironment() { return kEnvironment; }

}  // namespace weft::planner::frameworks

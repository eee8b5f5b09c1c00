#include "planner/parallelism/legality.h"

#include <fmt/format.h>

#include "planner/parallelism/tensor_grid.h"

namespace weft::planner::inline parallelism {
namespace {

bool Positive(const Strategy& s) {
  return s.dp >= 1 && s.tp >= 1 && s.pp >= 1 && s.cp >= 1 && s.ep >= 1 && s.etp >= 1 && s.vpp >= 1 &&
         s.micro_batch >= 1 && s.zero_stage >= 0 && s.zero_stage <= 3 && s.shard_group >= 0 && s.tensor_depth >= 1 &&
         s.recompute_layers >= -1 && s.bucket_bytes.count() >= 1 && s.local_steps >= 1;
}

/// dp · tp · cp · pp is the number of GPUs; no product on the way is larger.
bool FillsGpus(const Strategy& s, int64_t gpus) {
  int64_t product = 1;
  for (const int64_t degree : {s.dp, s.tp, s.cp, s.pp}) {
    if (degree > gpus / product) return false;
    product *= degree;
  }
  return product == gpus;
}

bool HeadsDivide(const ModelSpec& model, const Strategy& s) {
  if (model.heads % s.tp != 0) return false;
  return model.attention == Attention::kLatent || model.kv_heads % s.tp == 0 || s.tp % model.kv_heads == 0;
}

bool WidthDivides(const ModelSpec& model, const Strategy& s) {
  if (model.ffn_hidden % s.tp != 0 && model.MoeLayers() < model.layers) return false;
  return !model.IsMoe() || model.expert_ffn_hidden % s.etp == 0;
}

bool InterleaveFits(const Strategy& s) {
  const bool chunks = s.schedule == ScheduleKind::kInterleaved || s.schedule == ScheduleKind::kZbV;
  if (s.vpp > 1) return s.pp > 1 && chunks && (s.schedule != ScheduleKind::kZbV || s.vpp == 2);
  return !chunks;
}

bool ExpertsDivide(const ModelSpec& model, const Strategy& s) {
  if (!model.IsMoe()) return s.ep == 1 && s.etp == 1;
  const int64_t ranks = s.tp * s.cp * s.dp;
  return model.experts % s.ep == 0 && s.ep <= ranks && s.etp <= ranks && ranks % (s.ep * s.etp) == 0;
}

bool GridFits(const ModelSpec& model, const Strategy& s) {
  if (s.tensor_mode == TensorMode::k1D) return s.tensor_depth == 1;
  if ((s.tensor_mode != TensorMode::k25D && s.tensor_depth != 1) || s.tensor_depth > s.tp) return false;
  const auto q = GridSide(s.tensor_mode, s.tp, s.tensor_depth);
  if (!q || model.IsMoe() || model.attention == Attention::kLatent) return false;
  const int64_t rows = s.tensor_mode == TensorMode::k3D ? *q * *q : *q * s.tensor_depth;
  return s.micro_batch % rows == 0 && model.heads % *q == 0 && model.kv_heads % *q == 0 && model.hidden % *q == 0;
}

bool ConvolutionFits(const Strategy& s) {
  return s.cp == 1 && s.ep == 1 && s.vpp == 1 && !s.sequence_parallel && s.tensor_mode == TensorMode::k1D;
}

}  // namespace

bool ReplicasFit(const ModelSpec& model, const Strategy& s) {
  const bool plain = s.gradient_wire == GradientWire::kWhole && !ReplicasDiffer(s);
  if (plain) return true;
  if ((s.dp == 1 && s.cp == 1) || s.sharding != Sharding::kUniform) return false;
  if (!ReplicasDiffer(s)) return true;
  if (s.zero_stage != 0 || s.cp != 1 || s.ep != 1 || s.dp == 1) return false;
  // Ranks that work on one sample sum in every step: those of a CNN's slabs, and copies of experts inside a replica.
  return model.IsCnn() ? s.tp == 1 : !model.IsMoe() || s.etp == s.tp;
}

Rule CheckLegal(const JobSpec& job, int64_t gpus, const Strategy& s) {
  const ModelSpec& model = job.model;
  if (!Positive(s)) return Rule::kPositive;
  // Any values are safe: each product below is of factors that were held against a limit before.
  if (!FillsGpus(s, gpus)) return Rule::kGpus;
  if (s.micro_batch > job.global_batch || job.global_batch % (s.dp * s.micro_batch) != 0) return Rule::kBatch;
  if (!ReplicasFit(model, s)) return Rule::kReplicas;
  if (model.IsCnn()) {
    if (s.pp > model.layers) return Rule::kStages;
    if (!InterleaveFits(s)) return Rule::kInterleave;
    if (s.shard_group > 0 && (s.dp * s.cp) % s.shard_group != 0) return Rule::kShard;
    if (s.zero_stage == 3 && s.pp > 1 && !s.keep_after_forward) return Rule::kZeroPipeline;
    return ConvolutionFits(s) && s.sharding == Sharding::kUniform ? Rule::kLegal : Rule::kConvolution;
  }
  if (s.tensor_mode == TensorMode::k1D) {
    if (!HeadsDivide(model, s)) return Rule::kHeads;
    if (!WidthDivides(model, s)) return Rule::kWidth;
  }
  // Each chunk has a layer; embedding and head may stand for one each.
  if (s.vpp > model.layers + 2 || s.pp * s.vpp > model.layers + 2) return Rule::kStages;
  if (!InterleaveFits(s)) return Rule::kInterleave;
  if (job.sequence % s.cp != 0) return Rule::kContext;
  if (s.cp > 1 && s.context_mode == ContextMode::kUlysses && model.heads % (s.cp * s.tp) != 0) return Rule::kContext;
  if (!ExpertsDivide(model, s)) return Rule::kExperts;
  if (s.shard_group > 0 && (s.dp * s.cp) % s.shard_group != 0) return Rule::kShard;
  const bool operators = s.sharding == Sharding::kOperator;
  if (operators && (s.zero_stage != 3 || s.keep_after_forward || s.dp * s.cp == 1)) return Rule::kOperators;
  if (s.zero_stage == 3 && s.pp > 1 && !s.keep_after_forward && !operators) return Rule::kZeroPipeline;
  if (!GridFits(model, s)) return Rule::kGrid;
  if (s.sequence_parallel && (s.tp == 1 || s.tensor_mode != TensorMode::k1D)) return Rule::kSequence;
  return Rule::kLegal;
}

std::optional<std::string> WhyIllegal(const JobSpec& job, int64_t gpus, const Strategy& s) {
  const ModelSpec& model = job.model;
  switch (CheckLegal(job, gpus, s)) {
    case Rule::kLegal: return std::nullopt;
    case Rule::kPositive:
      return fmt::format("degrees: dp={} tp={} pp={} cp={} ep={} etp={} vpp={} micro_batch={} zero_stage={}, expected "
                         "degrees of at least 1 and zero_stage 0 to 3",
                         s.dp, s.tp, s.pp, s.cp, s.ep, s.etp, s.vpp, s.micro_batch, s.zero_stage);
    case Rule::kGpus:
      return fmt::format("gpus: dp={} x tp={} x cp={} x pp={} = {}, expected the job's {}", s.dp, s.tp, s.cp, s.pp,
                         GpuCount(s), gpus);
    case Rule::kBatch:
      return fmt::format("batch: dp={} x micro_batch={} does not divide the {} sequences", s.dp, s.micro_batch,
                         job.global_batch);
    case Rule::kHeads:
      return fmt::format("heads: tp={} does not divide {} heads, or does not match {} key/value heads", s.tp, model.heads,
                         model.kv_heads);
    case Rule::kWidth:
      return fmt::format("width: tp={} or etp={} does not divide the inner width {}", s.tp, s.etp,
                         model.IsMoe() ? model.expert_ffn_hidden : model.ffn_hidden);
    case Rule::kStages:
      return fmt::format("stages: pp={} x vpp={} chunks, expected at most {} layers with embedding and head", s.pp, s.vpp,
                         model.layers + 2);
    case Rule::kInterleave:
      return fmt::format("interleaving: vpp={} with pp={} and schedule {}, expected vpp > 1 with pp > 1 and an interleaved "
                         "schedule (zb-v: 2), or vpp = 1 with another", s.vpp, s.pp, ScheduleName(s.schedule));
    case Rule::kContext:
      return fmt::format("context: cp={} does not divide the {} tokens of a sequence, or with tp={} the {} heads that "
                         "{} needs", s.cp, job.sequence, s.tp, model.heads, ContextModeName(s.context_mode));
    case Rule::kExperts:
      return fmt::format("experts: ep={} x etp={}, expected ep to divide {} experts and the product to divide tp x cp x dp "
                         "= {}", s.ep, s.etp, model.experts, s.tp * s.cp * s.dp);
    case Rule::kShard:
      return fmt::format("sharding: shard_group={} does not divide dp x cp = {}", s.shard_group, s.dp * s.cp);
    case Rule::kZeroPipeline:
      return "sharding: zero_stage=3 with pp > 1 gathers per micro-batch, expected keep_after_forward";
    case Rule::kReplicas:
      return fmt::format("replicas: local_steps={} data_sync={} gradient_wire={} with zero_stage={} tp={} cp={} ep={} etp={} sharding={}, "
                         "expected two replicas and uniform sharding, and where replicas may differ zero_stage=0, cp=1, ep=1, experts' "
                         "etp=tp and a CNN's tp=1",
                         s.local_steps, DataSyncName(s.data_sync), GradientWireName(s.gradient_wire), s.zero_stage, s.tp, s.cp, s.ep, s.etp,
                         ShardingName(s.sharding));
    case Rule::kOperators:
      return fmt::format("sharding: osdp with zero_stage={} keep_after_forward={} and dp x cp = {}, expected zero_stage=3, "
                         "false and at least 2", s.zero_stage, s.keep_after_forward, s.dp * s.cp);
    case Rule::kGrid:
      return fmt::format("grid: {} with tp={} and depth {}: no such grid, or micro_batch={} or {} heads not divisible by "
                         "it", TensorModeName(s.tensor_mode), s.tp, s.tensor_depth, s.micro_batch, model.heads);
    case Rule::kSequence: return fmt::format("sequence_parallel: needs 1d tensor parallelism, tp={}", s.tp);
    case Rule::kConvolution: return "convolution: a CNN is split by dp, pp and, in space, tp only";
  }
  return std::nullopt;
}

}  // namespace weft::planner::parallelism
